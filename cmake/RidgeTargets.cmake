# Warnings, sanitizers and numeric flags shared by every target of the project.
add_library(ridge_flags INTERFACE)
target_include_directories(ridge_flags INTERFACE ${CMAKE_SOURCE_DIR}/src)
# No -march: one program runs on every x86-64. Paths in messages and debug information start at the
# source folder, so that a build does not depend on where the checkout lies.
target_compile_options(ridge_flags INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-ffp-contract=off;-fno-math-errno>"
  "$<$<COMPILE_LANGUAGE:CXX>:-ffile-prefix-map=${CMAKE_SOURCE_DIR}/=>")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # False alarms of GCC 12 about std::string (its bugs 105651 and 105562).
  target_compile_options(ridge_flags INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict;-Wno-maybe-uninitialized>")
  # ... and about the undefined operands in its own AVX-512 header (105593).
  set(RIDGE_ISA_WARNINGS -Wno-uninitialized)
endif()
if(RIDGE_WERROR)
  target_compile_options(ridge_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()
if(RIDGE_SANITIZE)
  target_compile_options(ridge_flags INTERFACE -fsanitize=${RIDGE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_compile_definitions(ridge_flags INTERFACE _GLIBCXX_ASSERTIONS)
  target_link_options(ridge_flags INTERFACE -fsanitize=${RIDGE_SANITIZE})
endif()
if(RIDGE_FUZZ)
  # Coverage in every object; only a fuzz target itself links libFuzzer's main().
  target_compile_options(ridge_flags INTERFACE -fsanitize=fuzzer-no-link)
  target_link_options(ridge_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

find_program(CCACHE ccache)
if(CCACHE)
  # A second checkout finds what the first has compiled.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1
    ${CCACHE})
endif()

# ridge_library(NAME DEPENDS ...): static library ridge_NAME from src/NAME/*.cpp (main.cpp excepted).
function(ridge_library name)
  cmake_parse_arguments(ARG "" "" "DEPENDS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${name}/*.cpp)
  list(FILTER sources EXCLUDE REGEX "/main\\.cpp$")
  if(sources)
    add_library(ridge_${name} STATIC ${sources})
    target_link_libraries(ridge_${name} PUBLIC ridge_flags ${ARG_DEPENDS})
  else()
    add_library(ridge_${name} INTERFACE)
    target_link_libraries(ridge_${name} INTERFACE ridge_flags ${ARG_DEPENDS})
  endif()
endfunction()
