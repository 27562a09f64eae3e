#pragma once

// Marks what GPU kernels call, too: nothing where the compiler is not nvcc.
#ifdef __CUDACC__
#define RIDGE_HOST_DEVICE __host__ __device__
#else
#define RIDGE_HOST_DEVICE
#endif
