/* Hearth: runs large language models on the local machine.
 *
 * The public interface of libhearth, and nothing that is not meant to stay. A model is opened once, immutable and
 * shared. A session is one sequence of inference over it (its own KV cache, one thread at a time). A batch evaluates
 * several sessions at once. A sampler turns logits into a token.
 *
 * Errors. Every function that can fail returns a hearth_status. If that is not HEARTH_OK, and err is not NULL, *err
 * has the same status and one line for the user, which does not begin with the name of the status; otherwise *err is
 * unchanged. ARGUMENT is the status of a caller's mistake, and its message names the parameter or the field: NULL
 * where no comment allows it, an enumerator that does not exist, a number out of range, an unknown size, bits or
 * reserved fields that are not zero. What a function would give is NULL or 0 then. Functions without a status do
 * nothing for an object that is NULL, and give NULL, false, -1 for a token, or 0. The library never prints, exits or
 * aborts.
 *
 * Ownership. What is given is copied before a function returns, unless a comment says until when it must stay valid;
 * so are strings in options. hearth_..._close gives up the caller's reference, and NULL is allowed. Objects hold
 * references to those that they use: they may be closed in any order, on any thread, and what one of them still uses
 * is freed with the last of them.
 *
 * Options. NULL, a struct of zeros and hearth_..._defaults() mean the same: zero is the default of each field, and
 * where something else than the default could be meant by zero there is a constant for that.
 *
 * Versions. The name of the shared library has the major and the minor version. Within a minor version, structs that
 * begin with `size` grow only at their end, and are never smaller than in its first release, 0.MINOR.0. size is sizeof
 * of the struct, as the program was compiled; 0 stands for the fields of 0.MINOR.0. Options: fields that are missing
 * count as zero, and bytes behind those that the library knows must be zero (ARGUMENT), so that nothing which was
 * asked for is ignored. Results: the caller sets size, and gets no more than that; what the library does not know is
 * zero. Structs without size (within others, in arrays, of callbacks, and hearth_error) never change but for their
 * reserved fields, which are zero.
 *
 * Threads. The library's own threads have names that begin with "hearth-", and block all signals but those that their
 * own faults raise (SIGBUS, SIGSEGV, SIGILL, SIGFPE, SIGTRAP, SIGSYS). Rounding, treatment of denormals and traps of
 * the calling thread (MXCSR, FPCR) change no result: the thread has them again after each call, and while a function
 * of the program runs. Workers of sessions, batches, embedders and schedulers are pinned to one physical core each,
 * which no other worker of the process has; those for which none is left run on all. no_pin and hearth_batch_unpin
 * turn that off, and HEARTH_PIN=0 in the environment for the process. The calling thread is never pinned.
 *
 * Any number of threads may use a model and a chat. Everything else is used by one thread at a time, which may be
 * another one each time: a function that finds a session, batch, embedder, sampler, detokenizer, answer or scheduler
 * in use, by another thread or by the function within which it is called, fails with ARGUMENT at once (those without a
 * status do nothing).
 *
 * Copies of a session may be made by several threads at once, and files, if it makes no drafts. Functions whose line
 * says "unchecked" do not look: the program sees to it; those that only tell may be called within its functions, too.
 * A close must not meet another function. Functions of the program are called on the thread that called the library,
 * but for that of hearth_log_set.
 *
 * hearth_session_cancel, hearth_batch_cancel, hearth_embedder_cancel and hearth_request_cancel may be called at any
 * time from any thread, and from signal handlers.
 *
 * A function of the program has to return: after longjmp or an exception the objects of the interrupted call stay in
 * use, and can only be closed. After fork, the child may exec, or open a model of its own if no other thread was
 * within the library; what the parent opened it must neither use nor close. The calling thread needs a stack of 256
 * KiB.
 *
 * Comments. The comment of each function ends in three lines. Errors: what it can return, with the reasons; ARGUMENT
 * for NULL and for an object in use is not repeated there. Ownership: whose is what is given and what comes back,
 * until when. Threads: which may call it: "any", also several at once, or "one at a time".
 *
 * Results. Their bits depend on the file, the tokens and the options that name an approximation (here: the KV type),
 * and on nothing else. */
#ifndef HEARTH_HEARTH_H
#define HEARTH_HEARTH_H

/* Models, texts, sessions, samplers, vectors of texts: all that one text needs. */
#include <hearth/base.h>
#include <hearth/device.h>
#include <hearth/model.h>
#include <hearth/text.h>
#include <hearth/session.h>
#include <hearth/sampler.h>
#include <hearth/embed.h>

/* Conversations with tools, answers of a form, and a text in one call. */
#include <hearth/chat.h>
#include <hearth/constraint.h>
#include <hearth/generate.h>

/* Several texts at once. */
#include <hearth/batch.h>
#include <hearth/draft.h>
#include <hearth/scheduler.h>

#endif
