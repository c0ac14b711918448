# make install: header, both libraries, pkg-config file, program, man page, completions.
# The pkg-config file finds its prefix from where it lies, so the tree can be moved.
file(RELATIVE_PATH HEARTH_PC_UP /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" HEARTH_PC_UP ${HEARTH_PC_UP})
configure_file(${PROJECT_SOURCE_DIR}/cmake/hearth.pc.in ${PROJECT_BINARY_DIR}/hearth.pc @ONLY)

install(TARGETS hearth hearth_shared
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES ${PROJECT_SOURCE_DIR}/include/hearth/hearth.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/hearth)
install(FILES ${PROJECT_BINARY_DIR}/hearth.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(TARGETS hearth_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})

# The program writes its own manual; one that was cross-built cannot be run here.
if(NOT CMAKE_CROSSCOMPILING)
  set(manual ${PROJECT_BINARY_DIR}/manual)
  file(MAKE_DIRECTORY ${manual})
  add_custom_command(
    OUTPUT ${manual}/hearth.1 ${manual}/hearth ${manual}/_hearth ${manual}/hearth.fish
    COMMAND hearth_program --man > ${manual}/hearth.1
    COMMAND hearth_program --completions bash > ${manual}/hearth
    COMMAND hearth_program --completions zsh > ${manual}/_hearth
    COMMAND hearth_program --completions fish > ${manual}/hearth.fish
    DEPENDS hearth_program VERBATIM)
  add_custom_target(hearth_manual ALL DEPENDS ${manual}/hearth.1)
  install(FILES ${manual}/hearth.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
  install(FILES ${manual}/hearth DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
  install(FILES ${manual}/_hearth DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
  install(FILES ${manual}/hearth.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
endif()
