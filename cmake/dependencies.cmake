# Libraries of others, which pkg-config finds. A cross build asks the pkg-config of its target, and never that of this
# machine without a folder of the target: PKG_CONFIG or PKG_CONFIG_EXECUTABLE (a wrapper), PKG_CONFIG_LIBDIR,
# PKG_CONFIG_SYSROOT_DIR, CMAKE_SYSROOT, or TRIPLET-pkg-config beside TRIPLET-gcc.

set(HEARTH_PKG_CONFIG 1)
if(CMAKE_CROSSCOMPILING AND NOT PKG_CONFIG_EXECUTABLE AND NOT DEFINED ENV{PKG_CONFIG}
   AND NOT DEFINED ENV{PKG_CONFIG_LIBDIR} AND NOT DEFINED ENV{PKG_CONFIG_SYSROOT_DIR})
  get_filename_component(compiler "${CMAKE_C_COMPILER}" NAME)
  string(REGEX REPLACE "-(gcc|clang|cc)(-[0-9.]+)?$" "" triplet "${compiler}")
  if(triplet STREQUAL compiler)
    set(triplet "${CMAKE_C_COMPILER_TARGET}")
  endif()
  if(triplet)
    find_program(PKG_CONFIG_EXECUTABLE ${triplet}-pkg-config)
  endif()
  if(NOT PKG_CONFIG_EXECUTABLE AND CMAKE_SYSROOT)
    set(ENV{PKG_CONFIG_SYSROOT_DIR} ${CMAKE_SYSROOT})
    set(ENV{PKG_CONFIG_LIBDIR}
      ${CMAKE_SYSROOT}/usr/lib/pkgconfig:${CMAKE_SYSROOT}/usr/lib/${triplet}/pkgconfig:${CMAKE_SYSROOT}/usr/share/pkgconfig)
  elseif(NOT PKG_CONFIG_EXECUTABLE)
    unset(PKG_CONFIG_EXECUTABLE CACHE)
    set(HEARTH_PKG_CONFIG 0)
    message(STATUS "cross build without a pkg-config of the target (${triplet}-pkg-config, PKG_CONFIG_LIBDIR or "
      "CMAKE_SYSROOT): built without utf8proc, liburing, jansson, libcurl, libedit and hearth serve")
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
