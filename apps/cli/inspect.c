#include "cli/verbs.h"
static int run(const args *a) { (void)a; return 1; }
const verb verb_inspect = {.name="inspect",.operands="",.run=run,.summary="",.details="",.example=""};
