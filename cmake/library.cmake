# libhearth: all modules of src/, static and shared, from one set of objects.
# A file's name says for which CPU level it is compiled: avx2.c or *_avx2.c, likewise avx512, avx512bf16 and neon; it
# gets -DHTH_LEVEL=avx2. Files of the other architecture are left out. kernels/quant/TYPE/arm.h is compiled for each level
# of AArch64, kernels/quant/TYPE/type.h for each level.

file(GLOB_RECURSE HEARTH_SOURCES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/*.c)

if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(FILTER HEARTH_SOURCES EXCLUDE REGEX "[_/](neon|dotprod|i8mm)\\.c$")
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  list(FILTER HEARTH_SOURCES EXCLUDE REGEX "[_/](avx2|avx512|avx512bf16)\\.c$")
else()
  list(FILTER HEARTH_SOURCES EXCLUDE REGEX "[_/](avx2|avx512|avx512bf16|neon|dotprod|i8mm)\\.c$")
endif()

set(levels ref)
set(arm_levels)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(levels ref avx2 avx512)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
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
# Arithmetic is worth more optimisation than the rest, but for the checks of sanitizers, which
# compile slowly enough.
set(kernel_sources ${HEARTH_SOURCES})
list(FILTER kernel_sources INCLUDE REGEX "/src/kernels/")
foreach(source IN LISTS kernel_sources)
  if(HEARTH_SANITIZE OR HEARTH_FUZZ)
    set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS -DHTH_NO_UNROLL)
  else()
    set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS $<$<CONFIG:Release>:-O3>)
  endif()
endforeach()

# So is the plan's table: its loop goes several cells at a time then.
set_property(SOURCE ${PROJECT_SOURCE_DIR}/src/planner/solve.c APPEND PROPERTY COMPILE_OPTIONS $<$<CONFIG:Release>:-O3>)

# PCRE2 cuts text for byte-level BPE. The program takes its archive where there is one,
# so that it can be carried away. Cross builds have no PCRE2 and do without.
if(HEARTH_PCRE2)
  find_package(PkgConfig REQUIRED)
  pkg_check_modules(HEARTH_PCRE2_LIBRARY REQUIRED IMPORTED_TARGET libpcre2-8>=10.30)
  set(HEARTH_PC_REQUIRES libpcre2-8)
  find_library(HEARTH_PCRE2_ARCHIVE libpcre2-8.a HINTS ${HEARTH_PCRE2_LIBRARY_LIBRARY_DIRS})
  mark_as_advanced(HEARTH_PCRE2_ARCHIVE)
  list(FILTER HEARTH_SOURCES EXCLUDE REGEX "/text/pretokenizer_none\\.c$")
else()
  set(HEARTH_PC_REQUIRES "")
  list(FILTER HEARTH_SOURCES EXCLUDE REGEX "/text/pretokenizer_pcre2\\.c$")
endif()

# A library that is used where it is found, by the rules of PCRE2; then the file WITH is compiled, else WITHOUT.
macro(hearth_optional_library NAME MODULE VERSION WITH WITHOUT)
  if(HEARTH_${NAME} AND NOT CMAKE_CROSSCOMPILING)
    find_package(PkgConfig REQUIRED)
    pkg_check_modules(HEARTH_${NAME}_LIBRARY IMPORTED_TARGET ${MODULE}>=${VERSION})
  endif()
  if(HEARTH_${NAME}_LIBRARY_FOUND)
    string(STRIP "${HEARTH_PC_REQUIRES} ${MODULE}" HEARTH_PC_REQUIRES)
    find_library(HEARTH_${NAME}_ARCHIVE NAMES ${MODULE}.a lib${MODULE}.a HINTS ${HEARTH_${NAME}_LIBRARY_LIBRARY_DIRS})
    mark_as_advanced(HEARTH_${NAME}_ARCHIVE)
    list(FILTER HEARTH_SOURCES EXCLUDE REGEX "/${WITHOUT}\\.c$")
  else()
    list(FILTER HEARTH_SOURCES EXCLUDE REGEX "/${WITH}\\.c$")
  endif()
endmacro()
# utf8proc knows characters for WordPiece; liburing reads storage by io_uring.
hearth_optional_library(UTF8PROC libutf8proc 2.3 text/unicode_utf8proc text/unicode_none)
hearth_optional_library(LIBURING liburing 2.3 store/disk_uring store/disk_uring_none)
# jansson reads JSON schemas.
hearth_optional_library(JANSSON jansson 2.10 constrain/json_tree_jansson constrain/json_tree_none)

# xxHash is used as a header (XXH_INLINE_ALL), so that it can be cross-compiled;
# only that one header is taken from the system's folder.
find_path(HEARTH_XXHASH_DIR xxhash.h HINTS /usr/include NO_CMAKE_FIND_ROOT_PATH REQUIRED)
configure_file(${HEARTH_XXHASH_DIR}/xxhash.h ${PROJECT_BINARY_DIR}/system/xxhash.h COPYONLY)

find_package(Threads REQUIRED)

add_library(hearth_objects OBJECT ${HEARTH_SOURCES})
# It runs on threads of others, whose stacks may be small; checks of a compiler need frames of their own.
if(NOT HEARTH_SANITIZE AND NOT HEARTH_FUZZ AND NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
  target_compile_options(hearth_objects PRIVATE -Wframe-larger-than=65536)
endif()
# Assertions of the library's own invariants live in debug, sanitizer and fuzz builds; a
# release never ends its process (tests/lint).
if(NOT HEARTH_SANITIZE AND NOT HEARTH_FUZZ)
  target_compile_definitions(hearth_objects PRIVATE $<$<CONFIG:Release>:NDEBUG>)
endif()
target_include_directories(hearth_objects PUBLIC ${PROJECT_SOURCE_DIR}/include)
target_include_directories(hearth_objects PRIVATE ${PROJECT_SOURCE_DIR}/src)
target_include_directories(hearth_objects SYSTEM PRIVATE ${PROJECT_BINARY_DIR}/system)

foreach(name PCRE2 UTF8PROC LIBURING JANSSON)
  if(HEARTH_${name}_LIBRARY_FOUND)
    target_link_libraries(hearth_objects PRIVATE PkgConfig::HEARTH_${name}_LIBRARY)
  endif()
endforeach()

add_library(hearth STATIC $<TARGET_OBJECTS:hearth_objects>)
add_library(hearth_shared SHARED $<TARGET_OBJECTS:hearth_objects>)
set_target_properties(hearth_shared PROPERTIES OUTPUT_NAME hearth VERSION ${PROJECT_VERSION}
  SOVERSION ${PROJECT_VERSION_MAJOR})
foreach(library hearth hearth_shared)
  target_include_directories(${library} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(${library} PUBLIC Threads::Threads)
endforeach()
foreach(name PCRE2 UTF8PROC LIBURING JANSSON)
  if(NOT HEARTH_${name}_LIBRARY_FOUND)
    continue()
  endif()
  target_link_libraries(hearth_shared PRIVATE PkgConfig::HEARTH_${name}_LIBRARY)
  if(HEARTH_${name}_ARCHIVE)
    target_link_libraries(hearth PRIVATE ${HEARTH_${name}_ARCHIVE})
  else()
    target_link_libraries(hearth PRIVATE PkgConfig::HEARTH_${name}_LIBRARY)
  endif()
endforeach()
