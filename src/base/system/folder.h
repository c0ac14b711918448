/* Makes folders for what is kept between runs. */
#ifndef HTH_BASE_FOLDER_H
#define HTH_BASE_FOLDER_H

#include <hearth/hearth.h>

/* Makes a folder of that mode, without what the umask takes, unless one is there. IO: the message
 * names it, and errno is the reason. */
hearth_status hth_folder_make(const char *path, unsigned mode, hearth_error *err);
/* The same of all folders that stand before the last '/' of a path. */
hearth_status hth_folder_make_parents(const char *path, unsigned mode, hearth_error *err);

#endif
