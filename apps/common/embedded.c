/* The model embedded in the program. The build sets HEARTH_EMBED (cmake -DHEARTH_EMBED=FILE embeds another).
 * The assembler includes the bytes, so that the compiler need not parse them. */
#include "common/options/model_args.h"

__asm__(".section .rodata\n"
        ".balign 64\n"
        ".globl embedded_model\n"
        "embedded_model:\n"
        ".incbin \"" HEARTH_EMBED "\"\n"
        "embedded_model_end:\n"
        ".balign 8\n"
        ".globl embedded_model_size\n"
        "embedded_model_size:\n"
        ".quad embedded_model_end - embedded_model\n"
        ".previous\n");
