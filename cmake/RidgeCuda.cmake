# RIDGE_CUDA=ON: says in one line what was found. A machine without nvcc builds everything else.
find_program(RIDGE_NVCC nvcc HINTS $ENV{CUDA_HOME}/bin $ENV{CUDA_PATH}/bin /usr/local/cuda/bin)
if(NOT RIDGE_NVCC)
  message(STATUS "CUDA: nvcc not found; building without it")
else()
  execute_process(COMMAND ${RIDGE_NVCC} --version OUTPUT_VARIABLE nvcc_version ERROR_QUIET)
  string(REGEX MATCH "release [0-9.]+" nvcc_version "${nvcc_version}")
  message(STATUS "CUDA: ${RIDGE_NVCC} (${nvcc_version}) found; this version of Ridge has no CUDA kernels")
endif()
