# RIDGE_CUDA=ON: says in one line what was found. A machine without nvcc builds everything else.
#
# RIDGE_CUDA_ARCHS lists what device code is made for: "native" is the GPU of this machine (90a where there is
# none), "all" every kind that Ridge knows, else numbers as nvcc has them: "80;86;89;90a;100".
set(RIDGE_CUDA_ARCHS native CACHE STRING "Compute capabilities to build CUDA kernels for")
set(RIDGE_HAS_CUDA OFF)
find_program(RIDGE_NVCC nvcc HINTS $ENV{CUDA_HOME}/bin $ENV{CUDA_PATH}/bin /usr/local/cuda/bin)
if(NOT RIDGE_NVCC)
  message(STATUS "CUDA: nvcc not found; building without it")
  return()
endif()
set(RIDGE_HAS_CUDA ON)
set(CMAKE_CUDA_COMPILER ${RIDGE_NVCC})
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
# Architectures are passed by hand: sm_90a's own instructions want exactly this form.
set(CMAKE_CUDA_ARCHITECTURES OFF)
# ccache knows nvcc (RidgeTargets has looked for it).
set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
enable_language(CUDA)
# Debian 12's CMake does not know that nvcc 13 takes C++20.
set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
find_package(CUDAToolkit REQUIRED)

if(RIDGE_CUDA_ARCHS STREQUAL "native")
  execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader
    OUTPUT_VARIABLE found_archs ERROR_QUIET RESULT_VARIABLE status)
  string(REGEX MATCHALL "[0-9]+\\.[0-9]+" found_archs "${found_archs}")
  string(REPLACE "." "" found_archs "${found_archs}")
  list(REMOVE_DUPLICATES found_archs)
  list(TRANSFORM found_archs REPLACE "^90$" "90a")
  if(NOT found_archs)
    set(found_archs 90a)
  endif()
elseif(RIDGE_CUDA_ARCHS STREQUAL "all")
  set(found_archs 80 86 89 90a 100)
else()
  set(found_archs ${RIDGE_CUDA_ARCHS})
endif()
set(RIDGE_GENCODE "")
foreach(arch ${found_archs})
  list(APPEND RIDGE_GENCODE -gencode=arch=compute_${arch},code=sm_${arch})
endforeach()
message(STATUS "CUDA: ${RIDGE_NVCC} ${CMAKE_CUDA_COMPILER_VERSION}, kernels for ${found_archs}")

# ridge_cuda_sources(TARGET): adds src/cuda/**/*.cu to it.
function(ridge_cuda_sources target)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/cuda/*.cu)
  target_sources(${target} PRIVATE ${sources})
  # -fmad=false: nothing is contracted that is not written as fmaf(), as on the CPU.
  target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:${RIDGE_GENCODE};-lineinfo;--expt-relaxed-constexpr;-fmad=false;-Xcompiler=-Wall,-Wextra,-Wno-unused-parameter,-ffile-prefix-map=${CMAKE_SOURCE_DIR}/=>")
  if(RIDGE_WERROR)
    target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings>")
  endif()
  set_source_files_properties(${sources} PROPERTIES LANGUAGE CUDA)
  # Of these kernels nvcc 13.0 makes wrong code at its usual level: FreshRows of ridge-device-tests tells.
  set_source_files_properties(${CMAKE_SOURCE_DIR}/src/cuda/decode_attention_any.cu PROPERTIES COMPILE_OPTIONS "-Xcicc=-O1")
  target_link_libraries(${target} PUBLIC CUDA::cudart_static)
endfunction()
