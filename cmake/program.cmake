# Models of hubs and of this machine: apps/hub. libcurl (7.85 or later) brings them, jansson reads what hubs and
# Ollama say; without them the command pull says what is missing.
file(GLOB HEARTH_HUB_SOURCES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/apps/hub/*.c)
add_library(hearth_hub STATIC ${HEARTH_HUB_SOURCES})
target_include_directories(hearth_hub PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/apps)
target_link_libraries(hearth_hub PUBLIC hearth)
hearth_find(CURL libcurl 7.85)
if(HEARTH_CURL_LIBRARY_FOUND)
  target_link_libraries(hearth_hub PRIVATE PkgConfig::HEARTH_CURL_LIBRARY)
endif()
# jansson is linked with the library, which reads JSON schemas by it.
if(HEARTH_JANSSON_LIBRARY_FOUND)
  target_include_directories(hearth_hub SYSTEM PRIVATE ${HEARTH_JANSSON_LIBRARY_INCLUDE_DIRS})
endif()
foreach(name CURL JANSSON)
  if(HEARTH_${name}_LIBRARY_FOUND)
    target_compile_definitions(hearth_hub PRIVATE HEARTH_${name}=1)
  else()
    target_compile_definitions(hearth_hub PRIVATE HEARTH_${name}=0)
  endif()
endforeach()

# The server: apps/serve but for its command, which says what is missing where this is not built.
find_path(HEARTH_HTTP_PARSER_DIR http_parser.h)
find_library(HEARTH_HTTP_PARSER_LIBRARY http_parser)
mark_as_advanced(HEARTH_HTTP_PARSER_DIR HEARTH_HTTP_PARSER_LIBRARY)
set(HEARTH_HAS_SERVE 0)
if(HEARTH_SERVE AND HEARTH_JANSSON_LIBRARY_FOUND AND HEARTH_HTTP_PARSER_DIR AND HEARTH_HTTP_PARSER_LIBRARY)
  pkg_check_modules(HEARTH_LIBUV_LIBRARY IMPORTED_TARGET libuv>=1.40)
  if(HEARTH_LIBUV_LIBRARY_FOUND)
    set(HEARTH_HAS_SERVE 1)
  endif()
endif()
if(HEARTH_HAS_SERVE)
  file(GLOB_RECURSE HEARTH_SERVE_SOURCES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/apps/serve/*.c)
  list(FILTER HEARTH_SERVE_SOURCES EXCLUDE REGEX "/(command|model_list)\\.c$")
  add_library(hearth_serve STATIC ${HEARTH_SERVE_SOURCES} ${PROJECT_SOURCE_DIR}/apps/common/json.c
    ${PROJECT_SOURCE_DIR}/apps/common/buffer.c)
  target_include_directories(hearth_serve PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/apps)
  target_include_directories(hearth_serve SYSTEM PUBLIC ${HEARTH_HTTP_PARSER_DIR})
  # The page of GET /, whose files the assembler includes.
  set(page ${PROJECT_SOURCE_DIR}/apps/serve/page)
  file(GLOB HEARTH_SERVE_PAGE_FILES CONFIGURE_DEPENDS ${page}/*)
  set_source_files_properties(${PROJECT_SOURCE_DIR}/apps/serve/endpoint_page.c PROPERTIES
    COMPILE_DEFINITIONS HEARTH_SERVE_PAGE="${page}" OBJECT_DEPENDS "${HEARTH_SERVE_PAGE_FILES}")
  target_link_libraries(hearth_serve PUBLIC hearth_hub hearth PkgConfig::HEARTH_LIBUV_LIBRARY
    ${HEARTH_HTTP_PARSER_LIBRARY})
endif()

# The program: apps/common and apps/cli over libhearth, with a model inside.
set(HEARTH_EMBED ${PROJECT_SOURCE_DIR}/models/storyteller-q8_0.gguf CACHE FILEPATH
  "the model that runs when none is named")
file(GLOB_RECURSE HEARTH_APP_SOURCES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/apps/common/*.c
  ${PROJECT_SOURCE_DIR}/apps/cli/*.c ${PROJECT_SOURCE_DIR}/apps/serve/command.c)
if(HEARTH_APP_SOURCES)
  add_executable(hearth_program ${HEARTH_APP_SOURCES})
  set_target_properties(hearth_program PROPERTIES OUTPUT_NAME hearth)
  target_include_directories(hearth_program PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/apps)
  target_link_libraries(hearth_program PRIVATE hearth_hub hearth)
  set_source_files_properties(${PROJECT_SOURCE_DIR}/apps/serve/command.c PROPERTIES
    COMPILE_DEFINITIONS HEARTH_SERVE=${HEARTH_HAS_SERVE})
  if(HEARTH_HAS_SERVE)
    target_sources(hearth_program PRIVATE ${PROJECT_SOURCE_DIR}/apps/serve/model_list.c)
    target_link_libraries(hearth_program PRIVATE hearth_serve)
  endif()
  # Line editing in chat. Without it chat reads plain lines.
  hearth_find(LIBEDIT libedit 0)
  if(HEARTH_LIBEDIT_LIBRARY_FOUND)
    target_link_libraries(hearth_program PRIVATE PkgConfig::HEARTH_LIBEDIT_LIBRARY)
    target_compile_definitions(hearth_program PRIVATE HEARTH_LIBEDIT=1)
  endif()
  set_source_files_properties(${PROJECT_SOURCE_DIR}/apps/common/embedded.c PROPERTIES
    COMPILE_DEFINITIONS HEARTH_EMBED="${HEARTH_EMBED}" OBJECT_DEPENDS ${HEARTH_EMBED})
  set(page ${PROJECT_SOURCE_DIR}/apps/cli/sparsity/study.html)
  set_source_files_properties(${PROJECT_SOURCE_DIR}/apps/cli/sparsity/study_page.c PROPERTIES
    COMPILE_DEFINITIONS HEARTH_STUDY_PAGE="${page}" OBJECT_DEPENDS ${page})
endif()
