# Options, language level, warnings and the instrumented builds. All of it is for this folder and those below it: a
# project that adds Hearth keeps its own settings.

option(HEARTH_PROGRAM "build the program" ${PROJECT_IS_TOP_LEVEL})
option(HEARTH_TESTS "build the tests" ${PROJECT_IS_TOP_LEVEL})
option(HEARTH_BENCH "build the probes of bench/" ${PROJECT_IS_TOP_LEVEL})
option(HEARTH_INSTALL "install, uninstall and package" ${PROJECT_IS_TOP_LEVEL})
option(HEARTH_PCRE2 "byte-level BPE, which cuts text by PCRE2; without it such vocabularies are refused" ON)
option(HEARTH_UTF8PROC "WordPiece, which normalises text by utf8proc, where it is found; else such vocabularies are refused" ON)
option(HEARTH_LIBURING "reads by io_uring, where liburing is found; else threads read" ON)
option(HEARTH_LIBEDIT "line editing in chat, where libedit is found" ON)
option(HEARTH_CURL "hearth pull, where libcurl is found" ON)
option(HEARTH_SERVE "hearth serve, where libuv, and llhttp or http-parser are found" ON)
option(HEARTH_LLHTTP "llhttp parses the requests of hearth serve where it is found; else http-parser" ON)
option(HEARTH_VULKAN "GPUs by Vulkan, where its headers and glslc are found" ON)
option(HEARTH_STATIC_DEPS "the program contains the libraries of libhearth (PCRE2, utf8proc, liburing)" OFF)
option(HEARTH_HARDENING "what distributions compile with: stack protector, fortified functions, RELRO, branch protection" ON)
option(HEARTH_WERROR "warnings are errors" OFF)
set(HEARTH_HOST_PROGRAM "" CACHE FILEPATH "in cross builds: a hearth of this machine, which writes man page and completions")
set(HEARTH_SANITIZE "" CACHE STRING "address, undefined, thread, or a list of them with commas")
set(HEARTH_KERNELS_FROM "" CACHE PATH "a build folder whose kernels are linked; empty: they are compiled")
option(HEARTH_FUZZ "build the fuzz targets with libFuzzer (clang)" OFF)
# As services of continuous fuzzing have it (.clusterfuzzlite): all flags of sanitizers and coverage are given then.
set(HEARTH_FUZZ_ENGINE "" CACHE STRING "what links the fuzz targets, $LIB_FUZZING_ENGINE; empty: clang's libFuzzer")
if((HEARTH_TESTS OR HEARTH_BENCH) AND NOT HEARTH_PROGRAM)
  message(FATAL_ERROR "HEARTH_TESTS and HEARTH_BENCH need HEARTH_PROGRAM, which is OFF")
endif()

set(CMAKE_C_STANDARD 17)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_UNITY_BUILD OFF) # static functions of several files have one name
get_property(multi_config GLOBAL PROPERTY GENERATOR_IS_MULTI_CONFIG)
if(PROJECT_IS_TOP_LEVEL)
  set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
  if(NOT CMAKE_BUILD_TYPE AND NOT multi_config)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
  endif()
endif()

# The flags that others set: the user's, by variables or CFLAGS, and those of a project that adds this one.
set(configs ${CMAKE_BUILD_TYPE})
if(multi_config)
  set(configs ${CMAKE_CONFIGURATION_TYPES})
endif()
get_directory_property(parent_options COMPILE_OPTIONS)
set(HEARTH_GIVEN_FLAGS "${CMAKE_C_COMPILER_ARG1} ${CMAKE_C_FLAGS}")
foreach(config IN LISTS configs)
  string(TOUPPER ${config} config)
  string(APPEND HEARTH_GIVEN_FLAGS " ${CMAKE_C_FLAGS_${config}}")
endforeach()
string(APPEND HEARTH_GIVEN_FLAGS " ${parent_options}")
string(REPLACE ";" " " HEARTH_GIVEN_FLAGS "${HEARTH_GIVEN_FLAGS}")
string(REGEX MATCHALL "(^| )-O[^ ]*" given_levels "${HEARTH_GIVEN_FLAGS}")
list(POP_BACK given_levels HEARTH_GIVEN_LEVEL) # the last one counts
string(STRIP "${HEARTH_GIVEN_LEVEL}" HEARTH_GIVEN_LEVEL)

# The order and rounding of every sum is part of the interface: no contraction into fused operations, no
# reassociation, no other treatment of small numbers (docs/arithmetic.md). Processor flags (-march=native) are fine.
get_directory_property(parent_link_options LINK_OPTIONS)
set(refused Ofast ffast-math funsafe-math-optimizations fassociative-math freciprocal-math ffinite-math-only
  fno-signed-zeros fno-honor-nans fno-honor-infinities fapprox-func fsingle-precision-constant ffp-contract=fast
  ffp-contract=on ffp-contract=fast-honor-pragmas ffp-model=fast ffp-model=aggressive mrecip mrecip=[^ ;>]* mdaz-ftz
  mfpmath=[^ ;>]*387[^ ;>]* mfpmath=both fdenormal-fp-math=[^ ;>]* fdenormal-fp-math-f32=[^ ;>]*)
list(JOIN refused "|" refused)
set(all_flags "${HEARTH_GIVEN_FLAGS} ${CMAKE_EXE_LINKER_FLAGS} ${CMAKE_SHARED_LINKER_FLAGS} ${parent_link_options} ")
if(all_flags MATCHES "(^|[ ;:,>\"'])-(${refused})([ ;>,\"'])")
  message(FATAL_ERROR "the flag -${CMAKE_MATCH_2} changes results, which Hearth promises to the bit (docs/arithmetic.md): "
    "remove it from CFLAGS, CMAKE_C_FLAGS, CMAKE_C_FLAGS_<CONFIG> or the project that adds Hearth "
    "(a build folder remembers CFLAGS: use another one)")
endif()
add_compile_options(-ffp-contract=off -fno-fast-math -fvisibility=hidden)

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

# Assertions live in debug, sanitizer and fuzz builds; a release never ends its process (tests/lint).
if(HEARTH_SANITIZE OR HEARTH_FUZZ)
  add_compile_options(-UNDEBUG)
else()
  add_compile_definitions($<$<NOT:$<CONFIG:Debug>>:NDEBUG>)
endif()
if(HEARTH_SANITIZE)
  add_compile_options(-fsanitize=${HEARTH_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${HEARTH_SANITIZE})
endif()
if(HEARTH_FUZZ AND NOT HEARTH_FUZZ_ENGINE)
  # What undefined behaviour a target shows ends it, as a fault of memory does.
  add_compile_options(-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all)
  add_link_options(-fsanitize=address,undefined)
endif()
