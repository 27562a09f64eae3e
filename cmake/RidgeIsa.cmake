# The CPU's kernels: src/cpu/isa/kernels_ISA.cpp is compiled for that instruction set alone, and left out
# where the target has no such thing. Which of them runs is chosen when the program starts.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  set(foreign_isas neon neon_bf16 neon_i8mm)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
  set(foreign_isas avx2 avx512 avx512_bf16 amx)
else()
  set(foreign_isas avx2 avx512 avx512_bf16 amx neon neon_bf16 neon_i8mm)
endif()

set(isa_flags_avx2 -mavx2 -mfma -mf16c)
set(isa_flags_avx512 ${isa_flags_avx2} -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni
  -mprefer-vector-width=512)
set(isa_flags_avx512_bf16 ${isa_flags_avx512} -mavx512bf16)
set(isa_flags_amx ${isa_flags_avx512_bf16} -mamx-tile -mamx-bf16)
set(isa_flags_neon -march=armv8.2-a+dotprod)
set(isa_flags_neon_bf16 -march=armv8.2-a+dotprod+bf16)
set(isa_flags_neon_i8mm -march=armv8.2-a+dotprod+i8mm)

get_target_property(sources ridge_cpu SOURCES)
foreach(isa avx2 avx512 avx512_bf16 amx neon neon_bf16 neon_i8mm)
  set(isa_sources ${sources})
  list(FILTER isa_sources INCLUDE REGEX "/isa/.*_${isa}\\.cpp$")
  if(isa IN_LIST foreign_isas)
    set_source_files_properties(${isa_sources} PROPERTIES HEADER_FILE_ONLY ON)
  else()
    set_source_files_properties(${isa_sources} PROPERTIES COMPILE_OPTIONS
      "${isa_flags_${isa}};${RIDGE_ISA_WARNINGS}")
  endif()
endforeach()
