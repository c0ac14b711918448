/* The sandbox, by trying: each case forks, since nothing leaves it. In the child everything is tried by its only thread, by
 * one that was started later, and system calls also by one that was started before. */
#include "serve/sandbox.h"
#include "support/test.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

/* Folders and files that exist before: made by make_files. */
static char root[200];
static int open_socket, listener, other_listener; /* before the sandbox */

static const char *in_root(const char *name)
{
    static _Thread_local char path[4][300];
    static _Thread_local unsigned turn;
    char *p = path[turn++ % 4];
    snprintf(p, sizeof path[0], "%s/%s", root, name);
    return p;
}

static bool make_files(void)
{
    static const char *const folders[] = {"", "models", "blobs", "kept", "sockets", "home", "home/.ssh", "foreign"};
    static const char *const files[] = {"models/a.gguf",  "models/beside", "blobs/b",        "sockets/s",
                                        "home/m.gguf",    "home/m2.gguf",  "home/notes",     "home/.ssh/key",
                                        "foreign/secret", "foreign/named"};
    bool ok = true;
    snprintf(root, sizeof root, "%s", test_scratch("sandbox"));
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) ok &= mkdir(in_root(folders[i]), 0700) == 0;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) ok &= test_write_file(in_root(files[i]), "x", 1);
    ok &= symlink("../blobs/b", in_root("models/link.gguf")) == 0;
    open_socket = socket(AF_INET, SOCK_STREAM, 0);
    listener = socket(AF_INET, SOCK_STREAM, 0);
    other_listener = socket(AF_INET, SOCK_STREAM, 0);
    ok = ok && listen(listener, 1) == 0 && listen(other_listener, 1) == 0;
    return CHECK(ok && open_socket >= 0);
}

static void close_sockets(void) { close(open_socket), close(listener), close(other_listener); }

/* ---- attempts: 0, or errno ------------------------------------------------------------------------------ */

static int result(long r) { return r < 0 ? errno : 0; }

static int closed(int fd)
{
    int error = result(fd);
    if (fd >= 0) close(fd);
    return error;
}

static int read_of(const char *name) { return closed(open(name[0] == '/' ? name : in_root(name), O_RDONLY | O_CLOEXEC)); }
static int write_of(const char *name) { return closed(open(in_root(name), O_WRONLY | O_CREAT | O_CLOEXEC, 0600)); }

static const struct sockaddr_in nowhere = {.sin_family = AF_INET};
static const struct sockaddr *const address = (const void *)&nowhere;
static char *const none[] = {NULL};

static int try_socket(void) { return closed(socket(AF_INET, SOCK_STREAM, 0)); }
static int try_unix_socket(void) { return closed(socket(AF_UNIX, SOCK_DGRAM, 0)); }
static int try_connect(void) { return result(connect(open_socket, address, sizeof nowhere)); }
static int try_bind(void) { return result(bind(open_socket, address, sizeof nowhere)); }
static int try_listen(void) { return result(listen(open_socket, 1)); }
/* A listening socket that is shut down can be connected, and TCP Fast Open does so without `connect`. */
static int try_fast_open(void)
{
    struct sockaddr_in to = {.sin_family = AF_INET};
    char x = 'x';
    struct iovec byte = {&x, 1};
    struct msghdr message = {.msg_name = &to, .msg_namelen = sizeof to, .msg_iov = &byte, .msg_iovlen = 1};
    struct mmsghdr several = {.msg_hdr = message};
    socklen_t size = sizeof to;
    if (getsockname(other_listener, (struct sockaddr *)&to, &size) != 0 || (shutdown(listener, SHUT_RDWR) != 0 && errno != ENOTCONN)) return errno;
    int error = result(sendto(listener, &x, 1, MSG_FASTOPEN, (const struct sockaddr *)&to, size));
    if (error == EPERM) error = result(sendmsg(listener, &message, MSG_FASTOPEN));
    return error == EPERM ? result(sendmmsg(listener, &several, 1, MSG_FASTOPEN)) : error;
}
/* Signals that a descriptor's events send, of any number and to any process. */
static int try_owner(void)
{
    int pid = getppid(), error = result(fcntl(open_socket, F_SETOWN, pid));
    struct f_owner_ex owner = {F_OWNER_PID, pid};
    if (error == EPERM) error = result(fcntl(open_socket, F_SETOWN_EX, &owner));
    if (error == EPERM) error = result(fcntl(open_socket, F_SETSIG, SIGKILL));
    if (error == EPERM) error = result(ioctl(open_socket, FIOSETOWN, &pid));
    return error == EPERM ? result(ioctl(open_socket, SIOCSPGRP, &pid)) : error;
}
static int try_foreign_limit(void)
{
    struct rlimit limit;
    return result(prlimit(getppid(), RLIMIT_CORE, NULL, &limit));
}
static int try_own_limit(void)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_CORE, &limit) == 0 ? result(prlimit(getpid(), RLIMIT_CORE, NULL, &limit)) : errno;
}
static int try_shared_memory(void) { return result(shmget(IPC_PRIVATE, 1, IPC_CREAT | 0600)); }
static int try_semaphores(void) { return result(semget(IPC_PRIVATE, 1, IPC_CREAT | 0600)); }
static int try_queue(void) { return result(msgget(IPC_PRIVATE, IPC_CREAT | 0600)); }
static int try_posix_queue(void) { return result(syscall(SYS_mq_open, "sandbox", O_RDONLY, 0, NULL)); }
static int try_watch(void)
{
    int fd = inotify_init1(IN_CLOEXEC), error = result(inotify_add_watch(fd, "/", IN_OPEN));
    close(fd);
    return error;
}
static int try_execve(void) { return result(execve("/bin/true", none, none)); }
static int try_execveat(void) { return result(syscall(SYS_execveat, AT_FDCWD, "/bin/true", none, none, 0)); }
static int try_ptrace(void) { return result(ptrace(PTRACE_ATTACH, getppid(), NULL, NULL)); }
static int try_fork(void)
{
    long child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0) _exit(0);
    return result(child);
}
static int try_clone3(void) { return result(syscall(435, NULL, 0)); }
static int try_process_vm(void)
{
    char byte;
    struct iovec here = {&byte, 1}, there = {&byte, 1};
    return result(process_vm_readv(getppid(), &here, 1, &there, 1, 0));
}
static int try_kill(void) { return result(kill(getppid(), 0)); }
static int try_foreign_signal(void) { return result(syscall(SYS_tgkill, getppid(), getppid(), 0)); }
static int try_own_signal(void) { return result(syscall(SYS_tgkill, getpid(), getpid(), 0)); }
static int try_typing(void) { return result(ioctl(STDERR_FILENO, TIOCSTI, "x")); }
static int try_mount(void) { return result(mount("a", root, "tmpfs", 0, NULL)); }
static int try_unshare(void) { return result(unshare(CLONE_NEWUSER)); }
static int try_chmod(void) { return result(chmod(in_root("kept"), 0777)); }
static int try_link(void) { return result(link(in_root("models/a.gguf"), in_root("kept/l"))); }
static int try_symlink(void) { return result(symlink("/etc", in_root("kept/s"))); }
static int try_truncate(void) { return result(truncate(in_root("foreign/secret"), 0)); }

static int read_model(void) { return read_of("models/a.gguf"); }
static int read_beside(void) { return read_of("models/beside"); }
static int read_linked(void) { return read_of("models/link.gguf"); }
static int list_models(void) { return closed(open(in_root("models"), O_RDONLY | O_DIRECTORY | O_CLOEXEC)); }
static int write_model(void) { return write_of("models/a.gguf"); }
static int make_model(void) { return write_of("models/new"); }
static int remove_model(void) { return result(unlink(in_root("models/beside"))); }
static int read_library(void) { return read_of("/usr"); }
static int read_proc(void) { return read_of("/proc/meminfo"); }
static int read_passwords(void) { return read_of("/etc/passwd"); }
static int read_secret(void) { return read_of("foreign/secret"); }
static int list_foreign(void) { return closed(open(in_root("foreign"), O_RDONLY | O_DIRECTORY | O_CLOEXEC)); }
static int write_secret(void) { return write_of("foreign/secret"); }
static int make_foreign(void) { return write_of("foreign/new"); }
static int remove_secret(void) { return result(unlink(in_root("foreign/secret"))); }
static int read_named(void) { return read_of("foreign/named"); }
static int read_home_model(void) { return read_of("home/m.gguf"); }
static int read_home_part(void) { return read_of("home/m2.gguf"); }
static int read_home_notes(void) { return read_of("home/notes"); }
static int read_home_key(void) { return read_of("home/.ssh/key"); }
static int make_socket_file(void) { return write_of("sockets/new"); }
static int replace_kept(void)
{
    int error = mkdir(in_root("kept/m"), 0700) == 0 || errno == EEXIST ? 0 : errno;
    if (!error) error = write_of("kept/m/part");
    if (!error) error = closed(open(in_root("kept/m/part"), O_RDWR | O_TRUNC | O_CLOEXEC));
    if (!error) error = result(rename(in_root("kept/m/part"), in_root("kept/m/file")));
    if (!error) error = read_of("kept/m/file");
    return error ? error : result(unlink(in_root("kept/m/file")));
}

typedef struct attempt {
    const char *what;
    int (*run)(void);
    int expected;
} attempt;

#define CALL(NAME, EXPECTED) {#NAME, NAME, EXPECTED}
static const attempt calls[] = {
    CALL(try_socket, EPERM),      CALL(try_unix_socket, EPERM),    CALL(try_connect, EPERM),   CALL(try_bind, EPERM),
    CALL(try_listen, EPERM),      CALL(try_execve, EPERM),         CALL(try_execveat, EPERM),  CALL(try_clone3, ENOSYS),
    CALL(try_process_vm, EPERM),  CALL(try_kill, EPERM),           CALL(try_typing, EPERM),    CALL(try_mount, EPERM),
    CALL(try_unshare, EPERM),     CALL(try_foreign_signal, EPERM), CALL(try_own_signal, 0),    CALL(try_chmod, EPERM),
    CALL(try_link, EPERM),        CALL(try_symlink, EPERM),        CALL(try_truncate, EPERM), CALL(try_fast_open, EPERM),
    CALL(try_owner, EPERM),       CALL(try_foreign_limit, EPERM),  CALL(try_own_limit, 0),    CALL(try_shared_memory, EPERM),
    CALL(try_semaphores, EPERM),  CALL(try_queue, EPERM),          CALL(try_posix_queue, EPERM), CALL(try_watch, EPERM),
};
/* LeakSanitizer needs both (sandbox.c). */
static const attempt traces[] = {CALL(try_fork, EPERM), CALL(try_ptrace, EPERM)};
static const attempt files[] = {
    CALL(read_model, 0),          CALL(read_beside, 0),         CALL(read_linked, 0),         CALL(list_models, 0),
    CALL(write_model, EACCES),    CALL(make_model, EACCES),     CALL(remove_model, EACCES),   CALL(read_library, 0),
    CALL(read_proc, 0),           CALL(read_passwords, EACCES), CALL(read_secret, EACCES),    CALL(list_foreign, EACCES),
    CALL(write_secret, EACCES),   CALL(make_foreign, EACCES),   CALL(remove_secret, EACCES),  CALL(read_named, 0),
    CALL(read_home_model, 0),     CALL(read_home_part, 0),      CALL(read_home_notes, EACCES), CALL(read_home_key, EACCES),
    CALL(make_socket_file, EACCES), CALL(replace_kept, 0),
};
#define N(LIST) (sizeof(LIST) / sizeof *(LIST))

/* ---- a process inside ------------------------------------------------------------------------------------ */

/* Prints what came out otherwise; the number of those. */
static int try_all(const char *thread, const attempt *list, size_t n)
{
    int n_wrong = 0;
    for (size_t i = 0; i < n; i++) {
        int error = list[i].run();
        if (error == list[i].expected) continue;
        fprintf(stderr, "%s thread, %s: %s, expected: %s\n", thread, list[i].what, strerror(error), strerror(list[i].expected));
        n_wrong++;
    }
    return n_wrong;
}

static int try_calls(const char *thread)
{
    return try_all(thread, calls, N(calls)) + (test_is_sanitized() ? 0 : try_all(thread, traces, N(traces)));
}

static const char *enter(void)
{
    sandbox s;
    setenv("HOME", in_root("home"), 1);
    sandbox_open(&s);
    sandbox_allow_model(&s, in_root("models/link.gguf"));
    sandbox_allow_model(&s, in_root("home/m.gguf"));
    sandbox_allow_model(&s, NULL);
    sandbox_allow_model(&s, in_root("nowhere/m.gguf"));
    sandbox_allow_read(&s, in_root("foreign/named"));
    sandbox_allow_write(&s, in_root("kept"));
    sandbox_allow_removal(&s, in_root("sockets/s"));
    return sandbox_enter(&s);
}

static pthread_barrier_t entered;

static void *earlier_thread(void *n_wrong)
{
    pthread_barrier_wait(&entered);
    *(int *)n_wrong = try_calls("earlier");
    return NULL;
}

static void *later_thread(void *n_wrong)
{
    *(int *)n_wrong = try_calls("later") + try_all("later", files, N(files));
    return NULL;
}

static int try_by_threads(void)
{
    int wrong[2] = {1, 1};
    pthread_t earlier, later;
    pthread_barrier_init(&entered, NULL, 2);
    if (pthread_create(&earlier, NULL, earlier_thread, &wrong[0]) != 0 || enter()) return -1;
    pthread_barrier_wait(&entered);
    int n_wrong = try_calls("first") + try_all("first", files, N(files));
    if (pthread_create(&later, NULL, later_thread, &wrong[1]) != 0) return -1;
    pthread_join(earlier, NULL);
    pthread_join(later, NULL);
    return n_wrong + wrong[0] + wrong[1] + (result(unlink(in_root("sockets/s"))) != 0);
}

/* What a child that runs fn ends with. */
static int status_of(int (*fn)(void))
{
    int status = -1;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) _exit(fn() & 0x7F);
    waitpid(child, &status, 0);
    return status;
}

static int is_incomplete(void) { return enter() != NULL; }

/* False: the case is skipped. */
static bool system_has_both(void)
{
    if (status_of(is_incomplete) == 0) return true;
    test_skip("this system has no Landlock or no filters of system calls");
    return false;
}

TEST(every_thread_is_refused_what_a_server_does_not_need)
{
    if (!make_files() || !system_has_both()) return;
    CHECK_INT(status_of(try_by_threads), 0);
    close_sockets();
}

/* ---- io_uring ---------------------------------------------------------------------------------------------- */

static int try_ring(void) { return result(syscall(425, 0, NULL)); }

static int seal(void)
{
    int outside = try_ring();
    if (enter() || try_ring() != outside) return 1;
    sandbox_seal();
    sandbox_seal();
    return try_ring() == EPERM && try_calls("sealed") == 0 ? 0 : 2;
}

TEST(no_ring_is_made_after_the_seal)
{
    if (!make_files() || !system_has_both()) return;
    CHECK_INT(status_of(seal), 0);
    close_sockets();
}

/* ---- another architecture ------------------------------------------------------------------------------------ */

#ifdef __x86_64__
static int call_as_i386(void)
{
    long number = 20; /* getpid */
    if (enter()) return 1;
    __asm__ volatile("int $0x80" : "+a"(number) : : "memory");
    return 0;
}

TEST(a_call_of_another_architecture_ends_the_process)
{
    if (!make_files() || !system_has_both()) return;
    int status = status_of(call_as_i386);
    CHECK(WIFSIGNALED(status) && (WTERMSIG(status) == SIGSYS || WTERMSIG(status) == SIGSEGV)); /* SEGV: the kernel has no i386 */
    close_sockets();
}
#endif

/* ---- systems that lack a part -------------------------------------------------------------------------------- */

/* One system call does not exist from here on. */
static bool take_away(unsigned number)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {N(code), code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static int without_landlock(void)
{
    if (!take_away(444)) return 1;
    const char *missing = enter();
    if (!missing || !strstr(missing, "Landlock") || strstr(missing, "seccomp")) return 2;
    return try_calls("old kernel") + (read_secret() != 0);
}

static int without_filters(void)
{
    if (!take_away(SYS_seccomp)) return 1;
    const char *missing = enter();
    if (!missing || strstr(missing, "Landlock") || !strstr(missing, "seccomp")) return 2;
    return try_all("old kernel", files, N(files)) + (try_unix_socket() != 0);
}

static int without_either(void)
{
    if (!take_away(SYS_seccomp)) return 1;
    sandbox s = {.ruleset = -1};
    const char *missing = sandbox_enter(&s);
    return missing && strstr(missing, "Landlock") && strstr(missing, "seccomp") ? 0 : 2;
}

TEST(what_a_kernel_lacks_is_named_and_the_rest_holds)
{
    if (!make_files() || !system_has_both()) return;
    CHECK_INT(status_of(without_landlock), 0);
    CHECK_INT(status_of(without_filters), 0);
    CHECK_INT(status_of(without_either), 0);
    close_sockets();
}
