/* The page of hearth study. The build sets HEARTH_STUDY_PAGE; the assembler includes the bytes. */
__asm__(".section .rodata\n"
        ".globl study_page\n"
        "study_page:\n"
        ".incbin \"" HEARTH_STUDY_PAGE "\"\n"
        "study_page_end:\n"
        ".byte 0\n"
        ".balign 8\n"
        ".globl study_page_size\n"
        "study_page_size:\n"
        ".quad study_page_end - study_page\n"
        ".previous\n");
