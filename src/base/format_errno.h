/* The text of an error of the system, for messages of all threads. strerror shares one buffer between threads, and
 * strerror_r is two functions of one name: which one a file gets hangs on its feature macros and on the C library. */
#ifndef HTH_BASE_FORMAT_ERRNO_H
#define HTH_BASE_FORMAT_ERRNO_H

/* Returned by value, for the arguments of a message: hth_format_errno(errno).text. */
typedef struct hth_errno_text {
    char text[100];
} hth_errno_text;

/* "No such file or directory"; a text for every number. Keeps errno. */
hth_errno_text hth_format_errno(int error);

#endif
