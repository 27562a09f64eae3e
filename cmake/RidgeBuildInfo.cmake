# Adds to ridge_cmd the one source file that knows what this build is (src/cmd/build_info.h). It is
# written when CMake configures, and only if something in it changed, so that a commit recompiles
# one small file at most.
set(RIDGE_COMMIT "")
find_package(Git QUIET)
if(GIT_FOUND AND EXISTS ${CMAKE_SOURCE_DIR}/.git)
  execute_process(COMMAND ${GIT_EXECUTABLE} rev-parse --short=12 HEAD
    WORKING_DIRECTORY ${CMAKE_SOURCE_DIR} OUTPUT_VARIABLE RIDGE_COMMIT
    OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
configure_file(${CMAKE_SOURCE_DIR}/src/cmd/build_info.cpp.in
  ${CMAKE_BINARY_DIR}/generated/cmd/build_info.cpp @ONLY)
target_sources(ridge_cmd PRIVATE ${CMAKE_BINARY_DIR}/generated/cmd/build_info.cpp)
