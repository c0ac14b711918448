# Language level, warnings and the instrumented builds.

option(HEARTH_TESTS "build the tests" ON)
option(HEARTH_BENCH "build the probes of bench/" ON)
option(HEARTH_PCRE2 "byte-level BPE, which cuts text by PCRE2; without it such vocabularies are refused" ON)
option(HEARTH_UTF8PROC "WordPiece, which normalises text by utf8proc, where it is found; else such vocabularies are refused" ON)
option(HEARTH_LIBURING "reads by io_uring, where liburing is found; else threads read" ON)
option(HEARTH_LIBEDIT "line editing in chat, where libedit is found" ON)
option(HEARTH_CURL "hearth pull, where libcurl is found" ON)
option(HEARTH_JANSSON "JSON schemas, and JSON of hubs and of Ollama's manifests, where jansson is found" ON)
option(HEARTH_SERVE "hearth serve, where libuv, http-parser and jansson are found" ON)
option(HEARTH_VULKAN "GPUs by Vulkan, where its headers and glslc are found" ON)
option(HEARTH_WERROR "warnings are errors" ON)
set(HEARTH_SANITIZE "" CACHE STRING "address, undefined, thread, or a list of them with commas")
option(HEARTH_FUZZ "build the fuzz targets with libFuzzer (clang)" OFF)

set(CMAKE_C_STANDARD 17)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
set(CMAKE_C_FLAGS_RELEASE "-O2 -g")
set(CMAKE_C_FLAGS_DEBUG "-O0 -g -DHEARTH_DEBUG=1")

# gcc explains how vectors were passed before version 4.6 wherever one is.
if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
  add_compile_options(-Wno-psabi)
endif()
add_compile_options(-Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Wmissing-prototypes
  -Wpointer-arith -Wcast-qual -Wwrite-strings -Wundef -Wvla -Wformat=2 -Wconversion
  -Wsign-conversion -Wdouble-promotion)
if(HEARTH_WERROR)
  add_compile_options(-Werror)
endif()

# The order and rounding of every sum is part of the interface: no contraction
# into fused operations, no reassociation (docs/arithmetic.md).
add_compile_options(-ffp-contract=off -fno-fast-math -fvisibility=hidden)

if(HEARTH_SANITIZE)
  add_compile_options(-fsanitize=${HEARTH_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  # Functions and lines are what a report names. Each test is a program with the whole library: more fills a disk.
  set(CMAKE_C_FLAGS_RELEASE "-O2 -g1")
  add_link_options(-fsanitize=${HEARTH_SANITIZE})
endif()
if(HEARTH_FUZZ)
  # What undefined behaviour a target shows ends it, as a fault of memory does.
  add_compile_options(-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all)
  add_link_options(-fsanitize=address,undefined)
endif()
