# libhearth: all modules of src/, static and shared, from one set of objects.
# A file's name says for which CPU level it is compiled: avx2.c or *_avx2.c, likewise avx512, avx512bf16 and neon; it
# gets -DHTH_LEVEL=avx2. Files of the other architecture are left out. kernels/quant/TYPE/arm.h is compiled for each level
# of AArch64, kernels/quant/TYPE/type.h for each level.

file(GLOB_RECURSE HEARTH_SOURCES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/*.c)

if(HEARTH_ARCH STREQUAL "x86_64")
  list(FILTER HEARTH_SOURCES EXCLUDE REGEX "[_/](neon|dotprod|i8mm)\\.c$")
  set(levels ref avx2 avx512)
  set(arm_levels)
else()
  list(FILTER HEARTH_SOURCES EXCLUDE REGEX "[_/](avx2|avx512|avx512bf16)\\.c$")
  set(arm_levels neon dotprod i8mm)
  set(levels ref ${arm_levels})
endif()
file(GLOB type_headers CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/src
  ${PROJECT_SOURCE_DIR}/src/kernels/quant/*/type.h ${PROJECT_SOURCE_DIR}/src/kernels/quant/*/arm.h)
foreach(header IN LISTS type_headers)
  get_filename_component(folder ${header} DIRECTORY)
  if(header MATCHES "/type\\.h$")
    set(header_levels ${levels})
  else()
    set(header_levels ${arm_levels})
  endif()
  foreach(level IN LISTS header_levels)
    set(source ${PROJECT_BINARY_DIR}/src/${folder}/${level}.c)
    file(CONFIGURE OUTPUT ${source} CONTENT "#include \"${header}\"\n")
    list(APPEND HEARTH_SOURCES ${source})
  endforeach()
endforeach()

include(cmake/vulkan.cmake)

set(HEARTH_FLAGS_avx2 -mavx2 -mfma -mf16c -mbmi -mbmi2 -mprefer-vector-width=256)
set(HEARTH_FLAGS_avx512 ${HEARTH_FLAGS_avx2} -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512cd
  -mavx512vnni -mavx512vbmi -mavx512vbmi2)
set(HEARTH_FLAGS_avx512bf16 ${HEARTH_FLAGS_avx512} -mavx512bf16)
set(HEARTH_FLAGS_neon "")
set(HEARTH_FLAGS_dotprod -march=armv8.2-a+dotprod)
set(HEARTH_FLAGS_i8mm -march=armv8.2-a+dotprod+i8mm)
foreach(source IN LISTS HEARTH_SOURCES)
  if(source MATCHES "[_/](ref|avx2|avx512|avx512bf16|neon|dotprod|i8mm)\\.c$")
    string(TOUPPER ${CMAKE_MATCH_1} level)
    set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${HEARTH_FLAGS_${CMAKE_MATCH_1}}"
      COMPILE_DEFINITIONS "HTH_LEVEL=${CMAKE_MATCH_1};HTH_LEVEL_${level}=1")
  endif()
endforeach()
# The type of a file is its folder's name: kernels/quant/TYPE/LEVEL.c.
foreach(source IN LISTS HEARTH_SOURCES)
  if(source MATCHES "/kernels/quant/([a-z0-9_]+)/[a-z0-9]+\\.c$")
    string(TOUPPER ${CMAKE_MATCH_1} type)
    set_property(SOURCE ${source} APPEND PROPERTY COMPILE_DEFINITIONS KERNEL_NAME=${CMAKE_MATCH_1}
      KERNEL_TYPE=HTH_TYPE_${type} KERNEL_PANEL="kernels/quant/${CMAKE_MATCH_1}/panel.h")
  endif()
endforeach()
# Arithmetic is worth more optimisation than the rest, whatever the build type is called, but for debuggers and the
# checks of sanitizers, which compile slowly enough. So is the plan's table: its loop goes several cells at a time then.
set(arithmetic "")
if(NOT HEARTH_SANITIZE AND NOT HEARTH_FUZZ AND NOT HEARTH_GIVEN_LEVEL MATCHES "^-O[0g]$")
  set(arithmetic $<$<NOT:$<CONFIG:Debug>>:-O3>)
endif()
foreach(source IN LISTS HEARTH_SOURCES)
  if(source MATCHES "/src/kernels/")
    set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS ${arithmetic} ${HEARTH_KERNEL_FLAGS})
    if(HEARTH_SANITIZE OR HEARTH_FUZZ)
      set_property(SOURCE ${source} APPEND PROPERTY COMPILE_DEFINITIONS HTH_NO_UNROLL)
    endif()
  elseif(source MATCHES "/src/planner/solve\\.c$")
    set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS ${arithmetic})
  endif()
endforeach()

# Kernels are most of what compiles. A sanitizer's build may link those of a release build: tests/kernels shows by guard
# pages that they stay within their memory, and make test-long compiles them with sanitizers.
set(kernel_objects "")
if(HEARTH_KERNELS_FROM)
  set(kernels ${HEARTH_SOURCES})
  list(FILTER kernels INCLUDE REGEX "/src/kernels/")
  list(REMOVE_ITEM HEARTH_SOURCES ${kernels})
  foreach(source IN LISTS kernels)
    string(REGEX REPLACE "^.*/src/kernels/" "${HEARTH_KERNELS_FROM}/CMakeFiles/hearth_objects.dir/src/kernels/" object ${source})
    list(APPEND kernel_objects ${object}${CMAKE_C_OUTPUT_EXTENSION})
  endforeach()
endif()

# PCRE2 cuts text for byte-level BPE, and is left out only by name.
hearth_find(PCRE2 libpcre2-8 10.30)
if(HEARTH_PCRE2 AND NOT HEARTH_PCRE2_LIBRARY_FOUND)
  message(FATAL_ERROR "pkg-config finds no libpcre2-8 (Debian: libpcre2-dev; cross builds: of the target). "
    "-DHEARTH_PCRE2=OFF builds without it, and without vocabularies of byte-level BPE")
endif()
# utf8proc knows characters for WordPiece; liburing reads storage by io_uring.
hearth_find(UTF8PROC libutf8proc 2.3)
hearth_find(LIBURING liburing 2.3)

# Where a library is found, the file WITH is compiled, else WITHOUT. HEARTH_DEPENDENCIES: the libraries that are found;
# HEARTH_PC_LIBS: what a program is linked with that contains libhearth.
set(HEARTH_DEPENDENCIES "")
set(HEARTH_PC_LIBS "")
function(hearth_either name with without)
  set(left_out ${with})
  if(HEARTH_${name}_LIBRARY_FOUND)
    set(left_out ${without})
    list(APPEND HEARTH_DEPENDENCIES ${name})
    list(APPEND HEARTH_PC_LIBS ${HEARTH_${name}_LIBRARY_STATIC_LDFLAGS})
  endif()
  list(FILTER HEARTH_SOURCES EXCLUDE REGEX "/${left_out}\\.c$")
  set(HEARTH_SOURCES ${HEARTH_SOURCES} PARENT_SCOPE)
  set(HEARTH_DEPENDENCIES ${HEARTH_DEPENDENCIES} PARENT_SCOPE)
  set(HEARTH_PC_LIBS ${HEARTH_PC_LIBS} PARENT_SCOPE)
endfunction()
hearth_either(PCRE2 text/pretokenizer_pcre2 text/pretokenizer_none)
hearth_either(UTF8PROC text/unicode_utf8proc text/unicode_none)
hearth_either(LIBURING store/disk_uring store/disk_uring_none)
list(APPEND HEARTH_PC_LIBS -pthread)
foreach(folder IN LISTS CMAKE_C_IMPLICIT_LINK_DIRECTORIES)
  list(REMOVE_ITEM HEARTH_PC_LIBS -L${folder})
endforeach()
list(REMOVE_DUPLICATES HEARTH_PC_LIBS)

# xxHash is used as a header (XXH_INLINE_ALL), so that it can be cross-compiled;
# only that one header is taken from the system's folder.
find_path(HEARTH_XXHASH_DIR xxhash.h HINTS /usr/include NO_CMAKE_FIND_ROOT_PATH REQUIRED)
configure_file(${HEARTH_XXHASH_DIR}/xxhash.h ${PROJECT_BINARY_DIR}/system/xxhash.h COPYONLY)

find_package(Threads REQUIRED)

add_library(hearth_objects OBJECT ${HEARTH_SOURCES})
# It runs on threads of others, whose stacks may be small; checks of a compiler need frames of their own.
if(NOT HEARTH_SANITIZE AND NOT HEARTH_FUZZ)
  target_compile_options(hearth_objects PRIVATE $<$<NOT:$<CONFIG:Debug>>:-Wframe-larger-than=65536>)
endif()
target_include_directories(hearth_objects PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
target_include_directories(hearth_objects SYSTEM PRIVATE ${PROJECT_BINARY_DIR}/system)

# Both libraries are of the same objects. Which of them BUILD_SHARED_LIBS asks for is hearth::hearth, and the only one
# of a package; without it a package has both. The program contains the static one, whose internal functions it uses.
add_library(hearth STATIC $<TARGET_OBJECTS:hearth_objects> ${kernel_objects})
add_library(hearth_shared SHARED $<TARGET_OBJECTS:hearth_objects> ${kernel_objects})
# Versions 0.MINOR are not compatible with each other.
set(HEARTH_SOVERSION ${PROJECT_VERSION_MAJOR})
if(PROJECT_VERSION_MAJOR EQUAL 0)
  set(HEARTH_SOVERSION 0.${PROJECT_VERSION_MINOR})
endif()
set_target_properties(hearth_shared PROPERTIES OUTPUT_NAME hearth VERSION ${PROJECT_VERSION} SOVERSION ${HEARTH_SOVERSION})
foreach(library hearth hearth_shared)
  set_target_properties(${library} PROPERTIES EXPORT_NAME hearth)
  target_include_directories(${library} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(${library} PRIVATE Threads::Threads)
endforeach()
foreach(name IN LISTS HEARTH_DEPENDENCIES)
  target_link_libraries(hearth_objects PRIVATE PkgConfig::HEARTH_${name}_LIBRARY)
  target_link_libraries(hearth_shared PRIVATE PkgConfig::HEARTH_${name}_LIBRARY)
  set(linked PkgConfig::HEARTH_${name}_LIBRARY)
  if(HEARTH_STATIC_DEPS)
    list(GET HEARTH_${name}_LIBRARY_LIBRARIES 0 archive)
    find_library(HEARTH_${name}_ARCHIVE lib${archive}.a HINTS ${HEARTH_${name}_LIBRARY_LIBRARY_DIRS} REQUIRED)
    mark_as_advanced(HEARTH_${name}_ARCHIVE)
    set(linked $<BUILD_INTERFACE:${HEARTH_${name}_ARCHIVE}> $<INSTALL_INTERFACE:${linked}>)
  endif()
  target_link_libraries(hearth PRIVATE ${linked})
endforeach()

set(HEARTH_LIBRARIES hearth hearth_shared)
add_library(hearth::static ALIAS hearth)
add_library(hearth::shared ALIAS hearth_shared)
if(BUILD_SHARED_LIBS)
  set(HEARTH_LIBRARIES hearth_shared)
  add_library(hearth::hearth ALIAS hearth_shared)
else()
  if(DEFINED BUILD_SHARED_LIBS OR NOT PROJECT_IS_TOP_LEVEL)
    set(HEARTH_LIBRARIES hearth)
  endif()
  add_library(hearth::hearth ALIAS hearth)
endif()
foreach(library hearth hearth_shared)
  if(NOT library IN_LIST HEARTH_LIBRARIES)
    set_target_properties(${library} PROPERTIES EXCLUDE_FROM_ALL ON)
  endif()
endforeach()
