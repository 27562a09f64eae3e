# 64-bit ARM, from another machine: Debian's cross compiler, libraries unpacked by
# scripts/fetch-arm64-libraries, and qemu-user to run what was built.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)

set(RIDGE_ARM64_LIBRARIES ${CMAKE_CURRENT_LIST_DIR}/../../build/arm64-libraries CACHE PATH
  "What scripts/fetch-arm64-libraries has unpacked")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES RIDGE_ARM64_LIBRARIES)
get_filename_component(root ${RIDGE_ARM64_LIBRARIES} ABSOLUTE)
if(NOT EXISTS ${root}/usr/include)
  message(FATAL_ERROR "${root} holds no libraries: run scripts/fetch-arm64-libraries ${root}")
endif()

set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH ${root})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${root})
set(ENV{PKG_CONFIG_LIBDIR} ${root}/usr/lib/aarch64-linux-gnu/pkgconfig:${root}/usr/share/pkgconfig)
# Libraries that libraries need are found there, too: an rpath of the old kind holds for them.
set(CMAKE_EXE_LINKER_FLAGS_INIT
  "-Wl,--disable-new-dtags,-rpath,${root}/usr/lib/aarch64-linux-gnu:${root}/lib/aarch64-linux-gnu")

# With the C library of the cross compiler. QEMU_CPU in the environment says which processor it is;
# without it, one that has everything.
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L /usr/aarch64-linux-gnu)
