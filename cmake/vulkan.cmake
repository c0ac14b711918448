# The Vulkan back end, where its headers and glslc are: shaders are compiled to SPIR-V in the library
# (NAME.dot.comp: NAME for devices that have integer dot products; NAME.matrix.comp, NAME.matrix2.comp: for
# matrix units, and with functions of their elements, which Debian 12's glslc cannot compile: their SPIR-V is
# in the repository; a glslc that can writes them again). The loader is opened at run time, so nothing is
# linked. Without them there is the null device alone.

find_program(GLSLC glslc)
find_path(VULKAN_HEADERS vulkan/vulkan_core.h)
if(HEARTH_VULKAN AND GLSLC AND VULKAN_HEADERS)
  set(shader_folder ${PROJECT_SOURCE_DIR}/src/device/vulkan/shaders)
  file(GLOB_RECURSE shaders CONFIGURE_DEPENDS ${shader_folder}/*.comp)
  file(GLOB_RECURSE included CONFIGURE_DEPENDS ${shader_folder}/*.glsl)
  set(spirv ${PROJECT_BINARY_DIR}/vulkan)
  set(includes "")
  set(cases "")
  set(dot_cases "")
  set(outputs "")
  foreach(extension IN ITEMS KHR_cooperative_matrix NV_cooperative_matrix2)
    file(WRITE ${spirv}/probe.comp
      "#version 450\n#extension GL_${extension} : require\nvoid main() {}\n")
    execute_process(COMMAND ${GLSLC} --target-env=vulkan1.3 -o ${spirv}/probe.spv ${spirv}/probe.comp
      RESULT_VARIABLE no_${extension} OUTPUT_QUIET ERROR_QUIET)
  endforeach()
  foreach(shader IN LISTS shaders)
    get_filename_component(name ${shader} NAME_WE)
    get_filename_component(file ${shader} NAME_WLE)
    string(REPLACE "." "_" array ${file})
    if(NOT file MATCHES "\\.matrix2?$")
      add_custom_command(OUTPUT ${spirv}/${file}.spv.inc
        COMMAND ${GLSLC} --target-env=vulkan1.2 -O -Werror -mfmt=num -I ${shader_folder} -o ${spirv}/${file}.spv.inc ${shader}
        DEPENDS ${shader} ${included} VERBATIM)
      list(APPEND outputs ${spirv}/${file}.spv.inc)
    else()
      get_filename_component(folder ${shader} DIRECTORY)
      list(APPEND outputs ${folder}/${file}.spv.inc)
      if(file MATCHES "2$")
        set(no_matrices ${no_NV_cooperative_matrix2})
      else()
        set(no_matrices ${no_KHR_cooperative_matrix})
      endif()
      if(NOT no_matrices)
        set(script ${PROJECT_SOURCE_DIR}/cmake/coopmat_spirv.cmake)
        add_custom_command(OUTPUT ${spirv}/${file}.stamp
          COMMAND ${CMAKE_COMMAND} -DGLSLC=${GLSLC} -DSHADER=${shader} -P ${script}
          COMMAND ${CMAKE_COMMAND} -E touch ${spirv}/${file}.stamp
          DEPENDS ${shader} ${included} ${script} VERBATIM)
        list(APPEND outputs ${spirv}/${file}.stamp)
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
  file(CONFIGURE OUTPUT ${spirv}/spirv.c @ONLY CONTENT "/* The SPIR-V of all shaders. */
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
  list(APPEND HEARTH_SOURCES ${spirv}/spirv.c)
  set_source_files_properties(${spirv}/spirv.c PROPERTIES
    OBJECT_DEPENDS "${outputs}"
    INCLUDE_DIRECTORIES "${spirv};${shader_folder}")
  set(HEARTH_HAS_VULKAN 1)
else()
  list(FILTER HEARTH_SOURCES EXCLUDE REGEX "/src/device/vulkan/")
  set(HEARTH_HAS_VULKAN 0)
endif()
set_source_files_properties(${PROJECT_SOURCE_DIR}/src/device/device.c PROPERTIES
  COMPILE_DEFINITIONS HTH_VULKAN=${HEARTH_HAS_VULKAN})
