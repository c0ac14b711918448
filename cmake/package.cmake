# Debian packages, by cpack in the build folder or make deb: hearth, libhearth0.MINOR and libhearth-dev, with the
# dependencies that dpkg-shlibdeps finds. Their prefix is /usr; a build folder that is configured for it
# (CMAKE_INSTALL_PREFIX=/usr) has Debian's folders for libraries, too.

if(NOT PROJECT_IS_TOP_LEVEL)
  return()
endif()
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME hearth)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_VENDOR "Hearth developers")
set(CPACK_PACKAGE_CONTACT "Hearth developers <hearth@noreply.invalid>")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_SET_DESTDIR ON)
set(CPACK_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_ALL runtime library development)
if(NOT HEARTH_PROGRAM)
  list(REMOVE_ITEM CPACK_COMPONENTS_ALL runtime)
endif()
if(NOT HEARTH_PACKAGE_SHARED)
  list(REMOVE_ITEM CPACK_COMPONENTS_ALL library)
endif()

set(library_package libhearth${HEARTH_SOVERSION})
set(summary "large language models on the machine at hand")
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY ">=")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME hearth)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION misc)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME ${library_package})
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libhearth-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
if(HEARTH_PACKAGE_SHARED)
  set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "${library_package} (= ${PROJECT_VERSION})")
endif()
# What the archive needs besides.
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SUGGESTS "libpcre2-dev, libutf8proc-dev, liburing-dev, pkg-config")
set(CPACK_COMPONENT_RUNTIME_DESCRIPTION "${summary}: the program
 Runs, serves, measures and converts models in GGUF files.")
set(CPACK_COMPONENT_LIBRARY_DESCRIPTION "${summary}: the shared library
 Runs models in GGUF files within a program.")
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION "${summary}: the library for development
 Headers, archive, manual, files for pkg-config and CMake, and examples.")
include(CPack)
