# Libraries of others, which pkg-config finds. A cross build asks the pkg-config of its target, and never that of this
# machine without a folder of the target: PKG_CONFIG or PKG_CONFIG_EXECUTABLE (a wrapper), PKG_CONFIG_LIBDIR,
# PKG_CONFIG_SYSROOT_DIR, CMAKE_SYSROOT, or TRIPLET-pkg-config beside TRIPLET-gcc.

set(HEARTH_PKG_CONFIG 1)
set(given 0)
foreach(variable PKG_CONFIG PKG_CONFIG_LIBDIR PKG_CONFIG_SYSROOT_DIR)
  if(DEFINED ENV{${variable}})
    set(given 1)
  endif()
endforeach()
# What CMake's module found by itself, in an earlier run with a system root, was not given.
if(PKG_CONFIG_EXECUTABLE AND NOT HEARTH_PKG_CONFIG_IN_SYSROOT)
  set(given 1)
endif()
if(CMAKE_CROSSCOMPILING AND NOT given)
  get_filename_component(compiler "${CMAKE_C_COMPILER}" NAME)
  string(REGEX REPLACE "-(gcc|clang|cc)(-[0-9.]+)?$" "" triplet "${compiler}")
  if(triplet STREQUAL compiler)
    set(triplet "${CMAKE_C_COMPILER_TARGET}")
  endif()
  if(triplet)
    find_program(PKG_CONFIG_EXECUTABLE ${triplet}-pkg-config)
  endif()
  if(CMAKE_SYSROOT AND (NOT PKG_CONFIG_EXECUTABLE OR HEARTH_PKG_CONFIG_IN_SYSROOT))
    set(HEARTH_PKG_CONFIG_IN_SYSROOT 1 CACHE INTERNAL "pkg-config of this machine reads the system root's files")
    set(ENV{PKG_CONFIG_SYSROOT_DIR} ${CMAKE_SYSROOT})
    set(ENV{PKG_CONFIG_LIBDIR}
      ${CMAKE_SYSROOT}/usr/lib/pkgconfig:${CMAKE_SYSROOT}/usr/lib/${triplet}/pkgconfig:${CMAKE_SYSROOT}/usr/share/pkgconfig)
  elseif(NOT PKG_CONFIG_EXECUTABLE)
    set(HEARTH_PKG_CONFIG 0)
    message(STATUS "cross build without a pkg-config of the target (TRIPLET-pkg-config, PKG_CONFIG_LIBDIR or "
      "CMAKE_SYSROOT): built without utf8proc, liburing, libcurl, libedit and hearth serve")
  endif()
endif()
if(HEARTH_PKG_CONFIG)
  find_package(PkgConfig)
  set(HEARTH_PKG_CONFIG ${PKG_CONFIG_FOUND})
endif()

# hearth_find(NAME MODULE VERSION): the target PkgConfig::HEARTH_NAME_LIBRARY and HEARTH_NAME_LIBRARY_FOUND, if the
# option HEARTH_NAME is on.
macro(hearth_find name module version)
  set(HEARTH_${name}_LIBRARY_FOUND 0)
  set(HEARTH_${name}_MODULE "${module}>=${version}")
  if(HEARTH_${name} AND HEARTH_PKG_CONFIG)
    pkg_check_modules(HEARTH_${name}_LIBRARY IMPORTED_TARGET GLOBAL ${HEARTH_${name}_MODULE})
  endif()
endmacro()
