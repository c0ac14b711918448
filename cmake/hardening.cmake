# What distributions compile and link with, where the compiler has it and the flags that were given say nothing else.
# Kernels go without the parts that would add instructions to their loops: HEARTH_KERNEL_FLAGS.

include(CheckCCompilerFlag)
include(CheckCSourceCompiles)
include(CheckLinkerFlag)
include(CheckPIESupported)

# The program can be loaded at any address, also where the compiler does not link so by itself.
check_pie_supported(LANGUAGES C)

set(HEARTH_KERNEL_FLAGS "")
# Adds FLAG unless given flags contain FAMILY, a regular expression.
function(hearth_harden flag family)
  string(MAKE_C_IDENTIFIER "HEARTH_HAS${flag}" has)
  if(NOT HEARTH_GIVEN_FLAGS MATCHES "${family}")
    check_c_compiler_flag(${flag} ${has})
    if(${has})
      add_compile_options(${flag})
    endif()
  endif()
endfunction()
function(hearth_harden_link flag)
  string(MAKE_C_IDENTIFIER "HEARTH_LINKS${flag}" has)
  check_linker_flag(C ${flag} ${has})
  if(${has})
    add_link_options(${flag})
  endif()
endfunction()

if(HEARTH_HARDENING AND NOT HEARTH_SANITIZE AND NOT HEARTH_FUZZ)
  hearth_harden(-fstack-protector-strong "stack-protector")
  hearth_harden(-fstack-clash-protection "stack-clash-protection")
  hearth_harden(-Wformat-security "format-security")
  if(HEARTH_ARCH STREQUAL "x86_64")
    hearth_harden(-fcf-protection "cf-protection")
  else()
    hearth_harden(-mbranch-protection=standard "branch-protection")
  endif()
  if(HEARTH_HAS_fstack_protector_strong AND NOT HEARTH_GIVEN_FLAGS MATCHES "stack-protector")
    list(APPEND HEARTH_KERNEL_FLAGS -fno-stack-protector)
  endif()

  # Functions of the C library that know the size of what they write to: with optimisation only. 3 is from gcc 12,
  # clang 9 and glibc 2.34 on; a library that has only 2 warns of 3.
  if(HEARTH_GIVEN_LEVEL AND NOT HEARTH_GIVEN_LEVEL STREQUAL "-O0" AND NOT HEARTH_GIVEN_FLAGS MATCHES "_FORTIFY_SOURCE")
    foreach(fortify 3 2)
      set(CMAKE_REQUIRED_FLAGS "-O2 -Werror -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=${fortify}")
      check_c_source_compiles("#include <string.h>\nint main(int n, char **v) { char c[9]; memcpy(c, v[0], (size_t)n); return c[0]; }"
        HEARTH_FORTIFIES_${fortify})
      unset(CMAKE_REQUIRED_FLAGS)
      if(HEARTH_FORTIFIES_${fortify})
        add_compile_options(-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=${fortify})
        list(APPEND HEARTH_KERNEL_FLAGS -U_FORTIFY_SOURCE)
        break()
      endif()
    endforeach()
  endif()

  hearth_harden_link(-Wl,-z,relro)
  hearth_harden_link(-Wl,-z,now)
  hearth_harden_link(-Wl,-z,noexecstack)
endif()
