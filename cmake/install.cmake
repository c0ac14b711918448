# cmake --install, by components: runtime (program, man page, completions, units, documents), library (the shared
# library) and development (headers, archive, pkg-config file, CMake package, manual, examples). Folders are those of
# GNUInstallDirs; the tree can be moved.

set(doc_dir ${CMAKE_INSTALL_DATADIR}/doc)

# ---- library, development ----------------------------------------------------------------------------------------
set(cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/hearth)
set(HEARTH_PACKAGE_STATIC OFF)
set(HEARTH_PACKAGE_SHARED OFF)
if(hearth IN_LIST HEARTH_LIBRARIES)
  set(HEARTH_PACKAGE_STATIC ON)
  install(TARGETS hearth EXPORT hearth-static ARCHIVE COMPONENT development)
  install(EXPORT hearth-static NAMESPACE hearth:: DESTINATION ${cmake_dir} COMPONENT development)
endif()
if(hearth_shared IN_LIST HEARTH_LIBRARIES)
  set(HEARTH_PACKAGE_SHARED ON)
  install(TARGETS hearth_shared EXPORT hearth-shared
    LIBRARY COMPONENT library NAMELINK_COMPONENT development)
  install(EXPORT hearth-shared NAMESPACE hearth:: DESTINATION ${cmake_dir} COMPONENT development)
  install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${doc_dir}/libhearth COMPONENT library)
endif()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/hearth DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development
  FILES_MATCHING PATTERN *.h)
file(GLOB examples CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/examples/*.c)
install(FILES ${examples} DESTINATION ${doc_dir}/hearth/examples COMPONENT development)

# hearth(3), and a page for each function.
set(manual ${PROJECT_BINARY_DIR}/manual)
file(GLOB headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/hearth/*.h)
add_custom_command(
  OUTPUT ${manual}/man3/hearth.3
  COMMAND ${CMAKE_COMMAND} -DSOURCE=${PROJECT_SOURCE_DIR} -DVERSION=${PROJECT_VERSION} -DOUT=${manual}/man3
    -P ${PROJECT_SOURCE_DIR}/cmake/manual.cmake
  DEPENDS ${PROJECT_SOURCE_DIR}/cmake/manual.cmake ${headers} ${examples} VERBATIM)
add_custom_target(hearth_library_manual ALL DEPENDS ${manual}/man3/hearth.3)
install(DIRECTORY ${manual}/man3 DESTINATION ${CMAKE_INSTALL_MANDIR} COMPONENT development)

set(HEARTH_PACKAGE_DEPENDENCIES "")
foreach(name IN LISTS HEARTH_DEPENDENCIES)
  string(APPEND HEARTH_PACKAGE_DEPENDENCIES " \"HEARTH_${name}_LIBRARY:${HEARTH_${name}_MODULE}\"")
endforeach()
include(CMakePackageConfigHelpers)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/hearth-config.cmake.in ${PROJECT_BINARY_DIR}/hearth-config.cmake
  INSTALL_DESTINATION ${cmake_dir} NO_SET_AND_CHECK_MACRO NO_CHECK_REQUIRED_COMPONENTS_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/hearth-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/hearth-config.cmake ${PROJECT_BINARY_DIR}/hearth-config-version.cmake
  DESTINATION ${cmake_dir} COMPONENT development)

# pkg-config leaves out the system's folders only where it reads their usual names: a file for /usr has them, and that
# for other places finds its prefix from where it lies. An absolute folder (CMAKE_INSTALL_LIBDIR) stays what it is.
set(HEARTH_PC_INCLUDEDIR "\${prefix}")
cmake_path(APPEND HEARTH_PC_INCLUDEDIR ${CMAKE_INSTALL_INCLUDEDIR})
set(HEARTH_PC_LIBDIR "\${prefix}")
cmake_path(APPEND HEARTH_PC_LIBDIR ${CMAKE_INSTALL_LIBDIR})
list(JOIN HEARTH_PC_LIBS " " HEARTH_PC_PRIVATE)
set(HEARTH_PC_PUBLIC "")
if(NOT HEARTH_PACKAGE_SHARED)
  set(HEARTH_PC_PUBLIC " ${HEARTH_PC_PRIVATE}")
endif()
set(HEARTH_PC_PREFIX ${CMAKE_INSTALL_PREFIX})
if(NOT IS_ABSOLUTE ${CMAKE_INSTALL_LIBDIR})
  file(RELATIVE_PATH up /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
  string(REGEX REPLACE "/$" "" up ${up})
  set(HEARTH_PC_PREFIX "\${pcfiledir}/${up}")
endif()
configure_file(${PROJECT_SOURCE_DIR}/cmake/hearth.pc.in ${PROJECT_BINARY_DIR}/pkgconfig/hearth.pc @ONLY)
set(HEARTH_PC_PREFIX /usr)
configure_file(${PROJECT_SOURCE_DIR}/cmake/hearth.pc.in ${PROJECT_BINARY_DIR}/pkgconfig/usr/hearth.pc @ONLY)
install(CODE "
  set(made \"${PROJECT_BINARY_DIR}/pkgconfig\")
  if(CMAKE_INSTALL_PREFIX STREQUAL \"/usr\")
    string(APPEND made /usr)
  endif()
  set(folder \"\${CMAKE_INSTALL_PREFIX}\")
  cmake_path(APPEND folder \"${CMAKE_INSTALL_LIBDIR}\" pkgconfig)
  file(INSTALL \"\${made}/hearth.pc\" DESTINATION \"\${folder}\")" COMPONENT development)

# ---- runtime -------------------------------------------------------------------------------------------------------
if(HEARTH_PROGRAM)
  install(TARGETS hearth_program RUNTIME COMPONENT runtime)
  install(FILES ${PROJECT_SOURCE_DIR}/deploy/systemd/hearth.service ${PROJECT_SOURCE_DIR}/deploy/systemd/hearth.socket
    DESTINATION lib/systemd/system COMPONENT runtime)
  install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/README.md ${PROJECT_SOURCE_DIR}/CHANGELOG.md
    ${PROJECT_SOURCE_DIR}/SECURITY.md DESTINATION ${doc_dir}/hearth COMPONENT runtime)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs ${PROJECT_SOURCE_DIR}/deploy DESTINATION ${doc_dir}/hearth COMPONENT runtime
    PATTERN systemd EXCLUDE)

  # The program writes its own manual. One that was cross-built cannot run here: one of this machine does it then.
  set(writer hearth_program)
  if(HEARTH_HOST_PROGRAM)
    set(writer ${HEARTH_HOST_PROGRAM})
  elseif(CMAKE_CROSSCOMPILING)
    set(writer "")
    message(STATUS "cross build: no man page and no completions; HEARTH_HOST_PROGRAM names a hearth of this machine, which writes them")
  endif()
  if(writer)
    # Debian's zsh reads files of packages from a folder of its own.
    set(zsh_dir ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
    if(CMAKE_INSTALL_PREFIX STREQUAL "/usr" AND EXISTS /etc/debian_version)
      set(zsh_dir ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions)
    endif()
    file(MAKE_DIRECTORY ${manual})
    add_custom_command(
      OUTPUT ${manual}/hearth.1 ${manual}/hearth ${manual}/_hearth ${manual}/hearth.fish
      COMMAND ${writer} --man > ${manual}/hearth.1
      COMMAND ${writer} --completions bash > ${manual}/hearth
      COMMAND ${writer} --completions zsh > ${manual}/_hearth
      COMMAND ${writer} --completions fish > ${manual}/hearth.fish
      DEPENDS ${writer} VERBATIM)
    add_custom_target(hearth_manual ALL DEPENDS ${manual}/hearth.1)
    install(FILES ${manual}/hearth.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT runtime)
    install(FILES ${manual}/hearth DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT runtime)
    install(FILES ${manual}/_hearth DESTINATION ${zsh_dir} COMPONENT runtime)
    install(FILES ${manual}/hearth.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d COMPONENT runtime)
  endif()
endif()

# What make install and make deb build: all that is installed, and no more.
add_custom_target(hearth_installed DEPENDS ${HEARTH_LIBRARIES})
foreach(target hearth_program hearth_manual hearth_library_manual)
  if(TARGET ${target})
    add_dependencies(hearth_installed ${target})
  endif()
endforeach()
if(PROJECT_IS_TOP_LEVEL)
  add_custom_target(uninstall COMMAND ${CMAKE_COMMAND} -DMANIFEST=${PROJECT_BINARY_DIR}/install_manifest.txt
    -P ${PROJECT_SOURCE_DIR}/cmake/uninstall.cmake VERBATIM)
endif()
