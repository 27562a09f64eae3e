# cmake -D SOURCE_DIR=... -D OUTPUT=... -D GIT_EXECUTABLE=... -D PROJECT_VERSION=... -D COMPILER=... -D BUILD_TYPE=... -P
# Writes OUTPUT from src/cmd/build_info.cpp.in, and leaves it alone where nothing in it changed. The commit is empty
# without git or outside a checkout, and has "-dirty" behind it where tracked files differ from it.
set(RIDGE_COMMIT "")
if(GIT_EXECUTABLE AND EXISTS ${SOURCE_DIR}/.git)
  execute_process(COMMAND ${GIT_EXECUTABLE} rev-parse --short=12 HEAD
    WORKING_DIRECTORY ${SOURCE_DIR} OUTPUT_VARIABLE RIDGE_COMMIT RESULT_VARIABLE failed
    OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(failed)
    set(RIDGE_COMMIT "")
  else()
    execute_process(COMMAND ${GIT_EXECUTABLE} --no-optional-locks status --porcelain --untracked-files=no
      WORKING_DIRECTORY ${SOURCE_DIR} OUTPUT_VARIABLE changes ERROR_QUIET)
    if(changes)
      string(APPEND RIDGE_COMMIT -dirty)
    endif()
  endif()
endif()
configure_file(${SOURCE_DIR}/src/cmd/build_info.cpp.in ${OUTPUT} @ONLY)
