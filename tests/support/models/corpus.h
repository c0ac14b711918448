/* Seeds of the fuzz targets, tests/fuzz/corpus/NAME: the same files that a fuzzer starts
 * from go through the target in every run of the tests. */
#ifndef HEARTH_TESTS_SUPPORT_MODELS_CORPUS_H
#define HEARTH_TESTS_SUPPORT_MODELS_CORPUS_H

#include <stddef.h>
#include <stdint.h>

typedef int corpus_target(const uint8_t *data, size_t n);

/* Gives each file of the folder to the target, in memory of exactly its size; returns how
 * many there were. A folder that is not there fails the case. */
int corpus_replay(const char *name, corpus_target *target);

#endif
