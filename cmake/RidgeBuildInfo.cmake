# Adds to ridge_cmd the one source file that knows what this build is (src/cmd/build_info.h). Each build looks at the
# checkout, and writes the file only if something in it changed: a commit recompiles one small file at most.
set(RIDGE_BUILD_INFO ${CMAKE_BINARY_DIR}/generated/cmd/build_info.cpp)
find_package(Git QUIET)
set(write_build_info ${CMAKE_COMMAND}
  -D SOURCE_DIR=${CMAKE_SOURCE_DIR} -D OUTPUT=${RIDGE_BUILD_INFO} -D GIT_EXECUTABLE=${GIT_EXECUTABLE}
  -D PROJECT_VERSION=${PROJECT_VERSION} -D COMPILER=${CMAKE_CXX_COMPILER_ID}\ ${CMAKE_CXX_COMPILER_VERSION}
  -D BUILD_TYPE=${CMAKE_BUILD_TYPE} -P ${CMAKE_SOURCE_DIR}/cmake/WriteBuildInfo.cmake)
add_custom_target(ridge_build_info COMMAND ${write_build_info} BYPRODUCTS ${RIDGE_BUILD_INFO} VERBATIM
  COMMENT "Looking which commit this is")
target_sources(ridge_cmd PRIVATE ${RIDGE_BUILD_INFO})
add_dependencies(ridge_cmd ridge_build_info)
