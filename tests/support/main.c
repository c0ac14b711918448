/* main of every test program that has none of its own: the linker takes it from the library. */
#include "support/test.h"

int main(int argc, char **argv) { return test_run_all(argc, argv); }
