# The Vulkan back end, where its headers and glslc are: programs are compiled and become words of the library
# (NAME.dot.comp: NAME for devices that have integer dot products; NAME.matrix.comp, NAME.matrix2.comp: for
# matrix units, and with functions of their elements, which Debian 12's glslc cannot compile: their words lie
# in the repository; a glslc that can writes them anew). The loader is opened at run time, so nothing is
# linked. Without them there is the null device alone.

find_program(GLSLC glslc)
find_path(VULKAN_HEADERS vulkan/vulkan_core.h)
if(HEARTH_VULKAN AND GLSLC AND VULKAN_HEADERS)
  file(GLOB programs CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/device/vulkan/shaders/*.comp)
  file(GLOB included CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/device/vulkan/shaders/*.glsl)
  set(words ${PROJECT_BINARY_DIR}/vulkan)
  set(includes "")
  set(cases "")
  set(dot_cases "")
  set(outputs "")
  foreach(extension IN ITEMS KHR_cooperative_matrix NV_cooperative_matrix2)
    file(WRITE ${words}/probe.comp
      "#version 450\n#extension GL_${extension} : require\nvoid main() {}\n")
    execute_process(COMMAND ${GLSLC} --target-env=vulkan1.3 -o ${words}/probe.spv ${words}/probe.comp
      RESULT_VARIABLE no_${extension} OUTPUT_QUIET ERROR_QUIET)
  endforeach()
  foreach(program IN LISTS programs)
    get_filename_component(name ${program} NAME_WE)
    get_filename_component(file ${program} NAME_WLE)
    string(REPLACE "." "_" array ${file})
    if(NOT file MATCHES "\\.matrix2?$")
      add_custom_command(OUTPUT ${words}/${file}.spv.inc
        COMMAND ${GLSLC} --target-env=vulkan1.2 -O -Werror -mfmt=num -o ${words}/${file}.spv.inc ${program}
        DEPENDS ${program} ${included} VERBATIM)
      list(APPEND outputs ${words}/${file}.spv.inc)
    else()
      get_filename_component(folder ${program} DIRECTORY)
      list(APPEND outputs ${folder}/${file}.spv.inc)
      if(file MATCHES "2$")
        set(no_matrices ${no_NV_cooperative_matrix2})
      else()
        set(no_matrices ${no_KHR_cooperative_matrix})
      endif()
      if(NOT no_matrices)
        set(script ${PROJECT_SOURCE_DIR}/cmake/matrix_spirv.cmake)
        add_custom_command(OUTPUT ${words}/${file}.stamp
          COMMAND ${CMAKE_COMMAND} -DGLSLC=${GLSLC} -DPROGRAM=${program} -P ${script}
          COMMAND ${CMAKE_COMMAND} -E touch ${words}/${file}.stamp
          DEPENDS ${program} ${included} ${script} VERBATIM)
        list(APPEND outputs ${words}/${file}.stamp)
      endif()
    endif()
    string(APPEND includes "static const uint32_t ${array}[] = {\n#include \"${file}.spv.inc\"\n};\n")
    set(case "    case HTH_SHADER_${name}: *size = sizeof ${array}; return ${array};\n")
    if(file MATCHES "\\.dot$")
      string(APPEND dot_cases "${case}")
    else()
      string(APPEND cases "${case}")
    endif()
  endforeach()
  file(CONFIGURE OUTPUT ${words}/spirv.c @ONLY CONTENT "/* The words of all programs. */
#include \"device/vulkan/vulkan_int.h\"

@includes@
const uint32_t *hth_vk_spirv(hth_shader_id id, bool dot, size_t *size)
{
    if (dot) {
        switch (id) {
@dot_cases@        default: break;
        }
    }
    switch (id) {
@cases@    default: break;
    }
    *size = 0;
    return NULL;
}
")
  list(APPEND HEARTH_SOURCES ${words}/spirv.c)
  set_source_files_properties(${words}/spirv.c PROPERTIES
    OBJECT_DEPENDS "${outputs}"
    INCLUDE_DIRECTORIES "${words};${PROJECT_SOURCE_DIR}/src/device/vulkan/shaders")
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
