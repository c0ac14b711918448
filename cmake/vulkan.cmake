# The Vulkan back end, where its headers and glslc are: programs are compiled and become words of the library. The
# loader is opened at run time, so nothing is linked. Without them there is the null device alone.

find_program(GLSLC glslc)
find_path(VULKAN_HEADERS vulkan/vulkan_core.h)
if(HEARTH_VULKAN AND GLSLC AND VULKAN_HEADERS)
  file(GLOB programs CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/device/vulkan/programs/*.comp)
  set(words ${PROJECT_BINARY_DIR}/vulkan)
  set(includes "")
  set(cases "")
  set(outputs "")
  foreach(program IN LISTS programs)
    get_filename_component(name ${program} NAME_WE)
    add_custom_command(OUTPUT ${words}/${name}.words
      COMMAND ${GLSLC} --target-env=vulkan1.2 -O -Werror -mfmt=num -o ${words}/${name}.words ${program}
      DEPENDS ${program} VERBATIM)
    string(APPEND includes "static const uint32_t ${name}[] = {\n#include \"${name}.words\"\n};\n")
    string(APPEND cases "    case HTH_PROGRAM_${name}: *size = sizeof ${name}; return ${name};\n")
    list(APPEND outputs ${words}/${name}.words)
  endforeach()
  file(CONFIGURE OUTPUT ${words}/words.c @ONLY CONTENT "/* The words of all programs. */
#include \"device/vulkan/vulkan_int.h\"

@includes@
const uint32_t *hth_vk_words(hth_program_id id, size_t *size)
{
    switch (id) {
@cases@    case HTH_N_PROGRAM: break;
    }
    *size = 0;
    return NULL;
}
")
  list(APPEND HEARTH_SOURCES ${words}/words.c)
  set_source_files_properties(${words}/words.c PROPERTIES
    OBJECT_DEPENDS "${outputs}" INCLUDE_DIRECTORIES ${words})
  set(HEARTH_HAS_VULKAN 1)
else()
  list(FILTER HEARTH_SOURCES EXCLUDE REGEX "/src/device/vulkan/")
  set(HEARTH_HAS_VULKAN 0)
  if(HEARTH_VULKAN)
    message(STATUS "no glslc or no Vulkan headers: built without Vulkan")
  endif()
endif()
set_source_files_properties(${PROJECT_SOURCE_DIR}/src/device/device.c PROPERTIES
  COMPILE_DEFINITIONS HTH_VULKAN=${HEARTH_HAS_VULKAN})
