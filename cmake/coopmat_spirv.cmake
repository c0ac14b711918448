# SPIR-V of a shader that the glslc of Debian 12 cannot compile, as a file of the repository:
#   cmake -DGLSLC=glslc -DSHADER=NAME.matrix.comp -P coopmat_spirv.cmake
# writes NAME.matrix.spv.inc beside it (NAME.matrix2.comp: NAME.matrix2.spv.inc, as SPIR-V 1.6), unless that is
# made from the same sources already: the shader's and all that it includes, by their SHA-256. tests/lint
# compares both.

cmake_minimum_required(VERSION 3.25)

get_filename_component(folder ${SHADER} DIRECTORY)
get_filename_component(name ${SHADER} NAME_WLE)
get_filename_component(source ${SHADER} NAME)

# In the order in which they are met.
set(files "")
set(unread ${source})
while(unread)
  list(POP_FRONT unread file)
  if(file IN_LIST files)
    continue()
  endif()
  list(APPEND files ${file})
  file(STRINGS ${folder}/${file} lines REGEX "^#include \"")
  foreach(line IN LISTS lines)
    string(REGEX REPLACE "^#include \"([^\"]+)\".*" "\\1" included "${line}")
    list(APPEND unread ${included})
  endforeach()
endwhile()
set(hashes "")
foreach(file IN LISTS files)
  file(SHA256 ${folder}/${file} hash)
  string(APPEND hashes " * ${hash} ${file}\n")
endforeach()

set(spirv ${folder}/${name}.spv.inc)
if(EXISTS ${spirv})
  file(READ ${spirv} old)
  string(FIND "${old}" "\n${hashes} */\n" at)
  if(at GREATER -1)
    return()
  endif()
endif()
execute_process(COMMAND ${GLSLC} --version OUTPUT_VARIABLE version COMMAND_ERROR_IS_FATAL ANY)
string(REGEX REPLACE "\n.*" "" version "${version}")
set(target vulkan1.2)
if(name MATCHES "2$")
  set(target vulkan1.3) # GL_NV_cooperative_matrix2 asks for it
endif()
execute_process(COMMAND ${GLSLC} --target-env=${target} -O -Werror -mfmt=num -o - ${SHADER}
  OUTPUT_VARIABLE numbers COMMAND_ERROR_IS_FATAL ANY)
set(head "Written by cmake/coopmat_spirv.cmake with ${version}, from files of these SHA-256:")
file(WRITE ${spirv} "/* ${head}\n${hashes} */\n${numbers}")
message(STATUS "wrote ${spirv}")
