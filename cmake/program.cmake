# The program: apps/common and apps/cli over libhearth, with a model inside.
set(HEARTH_EMBED ${PROJECT_SOURCE_DIR}/models/storyteller-q8_0.gguf CACHE FILEPATH
  "the model that runs when none is named")
file(GLOB HEARTH_APP_SOURCES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/apps/common/*.c
  ${PROJECT_SOURCE_DIR}/apps/cli/*.c)
if(HEARTH_APP_SOURCES)
  add_executable(hearth_program ${HEARTH_APP_SOURCES})
  set_target_properties(hearth_program PROPERTIES OUTPUT_NAME hearth)
  target_include_directories(hearth_program PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/apps)
  target_link_libraries(hearth_program PRIVATE hearth)
  set_source_files_properties(${PROJECT_SOURCE_DIR}/apps/common/embedded.c PROPERTIES
    COMPILE_DEFINITIONS HEARTH_EMBED="${HEARTH_EMBED}" OBJECT_DEPENDS ${HEARTH_EMBED})
endif()
