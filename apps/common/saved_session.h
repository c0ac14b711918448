/* Sessions that are kept in files by run and chat (hearth_session_save). */
#ifndef HEARTH_APPS_COMMON_SAVED_SESSION_H
#define HEARTH_APPS_COMMON_SAVED_SESSION_H

/* Files of saved sessions begin so. */
#define SAVED_SESSION_MAGIC "HTHSESSN"

#endif
