# cmake -D SOURCE_DIR=<the project> -D FOLDER=<to work in> -P: what cmake/WriteBuildInfo.cmake makes of a checkout.
find_package(Git REQUIRED)
set(checkout ${FOLDER}/checkout)
file(REMOVE_RECURSE ${FOLDER})
file(MAKE_DIRECTORY ${checkout}/src/cmd)
file(COPY ${SOURCE_DIR}/src/cmd/build_info.cpp.in DESTINATION ${checkout}/src/cmd)

function(git)
  execute_process(COMMAND ${GIT_EXECUTABLE} -c user.name=test -c user.email=test@localhost ${ARGN}
    WORKING_DIRECTORY ${checkout} COMMAND_ERROR_IS_FATAL ANY OUTPUT_QUIET)
endfunction()

# Runs it, and expects the commit to match a regular expression.
function(expect_commit expression git_executable)
  execute_process(COMMAND ${CMAKE_COMMAND} -D SOURCE_DIR=${checkout} -D OUTPUT=${FOLDER}/build_info.cpp
    -D GIT_EXECUTABLE=${git_executable} -D PROJECT_VERSION=1.2.3 -D "COMPILER=GNU 12" -D BUILD_TYPE=Release
    -P ${SOURCE_DIR}/cmake/WriteBuildInfo.cmake COMMAND_ERROR_IS_FATAL ANY)
  file(READ ${FOLDER}/build_info.cpp text)
  if(NOT text MATCHES "{\"1\\.2\\.3\", \"${expression}\", \"GNU 12\",[ \n]*\"Release\"}")
    message(FATAL_ERROR "expected the commit ${expression} in:\n${text}")
  endif()
endfunction()

set(hash "[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]")
expect_commit("" ${GIT_EXECUTABLE})  # no checkout
git(init -q)
expect_commit("" ${GIT_EXECUTABLE})  # no commit
git(add .)
git(commit -q -m first)
expect_commit(${hash} ${GIT_EXECUTABLE})
file(READ ${FOLDER}/build_info.cpp first)
file(TIMESTAMP ${FOLDER}/build_info.cpp before "%s")
execute_process(COMMAND ${CMAKE_COMMAND} -E sleep 1.1)
file(WRITE ${checkout}/untracked "x")
expect_commit(${hash} ${GIT_EXECUTABLE})
file(TIMESTAMP ${FOLDER}/build_info.cpp after "%s")
if(NOT before STREQUAL after)
  message(FATAL_ERROR "the file was written though nothing changed")
endif()
file(APPEND ${checkout}/src/cmd/build_info.cpp.in "\n")
expect_commit(${hash}-dirty ${GIT_EXECUTABLE})
git(commit -q -a -m second)
expect_commit(${hash} ${GIT_EXECUTABLE})
file(READ ${FOLDER}/build_info.cpp second)
string(REGEX MATCH ${hash} first_hash "${first}")
string(REGEX MATCH ${hash} second_hash "${second}")
if(first_hash STREQUAL second_hash)
  message(FATAL_ERROR "a second commit has the first one's name")
endif()
expect_commit("" "")  # no git
