# make install: header, both libraries, pkg-config file, program.
install(TARGETS hearth hearth_shared
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES ${PROJECT_SOURCE_DIR}/include/hearth/hearth.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/hearth)
configure_file(${PROJECT_SOURCE_DIR}/cmake/hearth.pc.in ${PROJECT_BINARY_DIR}/hearth.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/hearth.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
if(TARGET hearth_program)
  install(TARGETS hearth_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
