/* The marks of DeepSeek's templates: words between fullwidth bars, joined by a low block. */
#ifndef HTH_CHAT_DEEPSEEK_MARKS_H
#define HTH_CHAT_DEEPSEEK_MARKS_H

#define HTH_DEEPSEEK(WORDS) "<\xEF\xBD\x9C" WORDS "\xEF\xBD\x9C>" /* U+FF5C */
#define HTH_DEEPSEEK_2(A, B) HTH_DEEPSEEK(A "\xE2\x96\x81" B)     /* U+2581 */
#define HTH_DEEPSEEK_3(A, B, C) HTH_DEEPSEEK_2(A "\xE2\x96\x81" B, C)

/* Around all calls of functions, around each, and between its parts. */
#define HTH_DEEPSEEK_FIRST HTH_DEEPSEEK_3("tool", "calls", "begin")
#define HTH_DEEPSEEK_LAST HTH_DEEPSEEK_3("tool", "calls", "end")
#define HTH_DEEPSEEK_OPEN HTH_DEEPSEEK_3("tool", "call", "begin")
#define HTH_DEEPSEEK_CLOSE HTH_DEEPSEEK_3("tool", "call", "end")
#define HTH_DEEPSEEK_SEP HTH_DEEPSEEK_2("tool", "sep")

#endif
