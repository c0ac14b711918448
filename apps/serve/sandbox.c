/* The rules of Landlock and the filter of system calls.
 *
 * The filter names what is refused, and lets the rest pass: GPU drivers are not ours, and make calls that no list of ours
 * would have. A refused call fails with EPERM and ends nothing, since libraries try some of them and go on without (a
 * look-up of a user asks a daemon by a socket). Calls by the interface of another architecture, which would pass by other
 * numbers, end the process: no program of ours makes one. */
#define _GNU_SOURCE
#include "serve/sandbox.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- files --------------------------------------------------------------------------------------------- */

/* The interface of linux/landlock.h, which older systems lack or have without the later rights. */
enum { CALL_CREATE_RULESET = 444, CALL_ADD_RULE, CALL_RESTRICT_SELF };
enum { ASK_VERSION = 1, RULE_PATH_BENEATH = 1 };
enum {
    RIGHT_WRITE_FILE = 1 << 1,
    RIGHT_READ_FILE = 1 << 2,
    RIGHT_READ_DIR = 1 << 3,
    RIGHT_REMOVE_FILE = 1 << 5,
    RIGHT_MAKE_DIR = 1 << 7,
    RIGHT_MAKE_REG = 1 << 8,
    RIGHT_TRUNCATE = 1 << 14,
    RIGHT_IOCTL_DEV = 1 << 15,
    RIGHTS_OF_FILES = 1 | RIGHT_WRITE_FILE | RIGHT_READ_FILE | RIGHT_TRUNCATE | RIGHT_IOCTL_DEV, /* 1: execute */
    READ = RIGHT_READ_FILE | RIGHT_READ_DIR,
    WRITE = READ | RIGHT_WRITE_FILE | RIGHT_REMOVE_FILE | RIGHT_MAKE_DIR | RIGHT_MAKE_REG | RIGHT_TRUNCATE,
    USE_DEVICE = READ | RIGHT_WRITE_FILE | RIGHT_IOCTL_DEV,
};
/* A kernel that knows fewer fields takes the others if they are zero. */
typedef struct ruleset_fields {
    uint64_t files, ports, scopes;
} ruleset_fields;
typedef struct __attribute__((packed)) path_rule {
    uint64_t rights;
    int32_t fd;
} path_rule;

/* All rights that a version of the interface knows are to be refused where no rule grants them. */
static ruleset_fields fields_of(long version)
{
    const uint64_t first = (1 << 13) - 1, refer = 1 << 13, both = 3; /* both: bind and connect; abstract sockets and signals */
    return (ruleset_fields){.files = first | (version >= 2 ? refer : 0) | (version >= 3 ? RIGHT_TRUNCATE : 0) |
                                     (version >= 5 ? RIGHT_IOCTL_DEV : 0),
                            .ports = version >= 4 ? both : 0,
                            .scopes = version >= 6 ? both : 0};
}

static void allow(const sandbox *s, const char *path, uint64_t rights)
{
    struct stat info;
    int fd = path && s->ruleset >= 0 ? open(path, O_PATH | O_CLOEXEC) : -1;
    if (fd < 0) return;
    if (fstat(fd, &info) == 0 && !S_ISDIR(info.st_mode)) rights &= RIGHTS_OF_FILES;
    path_rule rule = {rights & s->rights, fd};
    (void)syscall(CALL_ADD_RULE, s->ruleset, RULE_PATH_BENEATH, &rule, 0);
    close(fd);
}

void sandbox_allow_read(const sandbox *s, const char *path) { allow(s, path, READ); }
void sandbox_allow_write(const sandbox *s, const char *path) { allow(s, path, WRITE); }

void sandbox_allow_cache(const sandbox *s, const char *folder)
{
    static const char *const variables[] = {"MESA_SHADER_CACHE_DIR", "__GL_SHADER_DISK_CACHE_PATH"};
    sandbox_allow_write(s, folder);
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        setenv(variables[i], folder, 0);
        sandbox_allow_write(s, getenv(variables[i]));
    }
}

/* The folder of a path, to be freed; NULL: no memory, or no path. */
static char *folder_of(const char *path)
{
    const char *slash = path ? strrchr(path, '/') : NULL;
    if (path && !slash) return strdup(".");
    return path ? strndup(path, slash == path ? 1 : (size_t)(slash - path)) : NULL;
}

void sandbox_allow_removal(const sandbox *s, const char *path)
{
    char *folder = folder_of(path);
    allow(s, folder, RIGHT_REMOVE_FILE);
    free(folder);
}

static bool holds_home(const char *folder)
{
    const char *home = getenv("HOME");
    char *real = realpath(folder, NULL), *real_home = home ? realpath(home, NULL) : NULL;
    size_t n = real ? strlen(real) : 0;
    bool holds = real && (n == 1 || (real_home && strncmp(real, real_home, n) == 0 && strchr("/", real_home[n])));
    free(real);
    free(real_home);
    return holds;
}

static void allow_models_in(const sandbox *s, const char *folder)
{
    DIR *dir = opendir(folder);
    for (const struct dirent *e; dir && (e = readdir(dir));) {
        char *path;
        size_t n = strlen(e->d_name);
        if (n < 5 || strcmp(e->d_name + n - 5, ".gguf") != 0 || asprintf(&path, "%s/%s", folder, e->d_name) < 0) continue;
        sandbox_allow_read(s, path);
        free(path);
    }
    if (dir) closedir(dir);
}

static void allow_beside(const sandbox *s, const char *path)
{
    char *folder = folder_of(path);
    if (folder && holds_home(folder)) {
        allow_models_in(s, folder);
        sandbox_allow_read(s, path);
    } else {
        sandbox_allow_read(s, folder);
    }
    free(folder);
}

void sandbox_allow_model(const sandbox *s, const char *path)
{
    char *real = path ? realpath(path, NULL) : NULL;
    allow_beside(s, path);
    allow_beside(s, real);
    free(real);
}

/* A variable that names files and folders with colons between them: a driver and its description lie beside each other. */
static void allow_listed(const sandbox *s, const char *variable)
{
    const char *value = getenv(variable);
    char *copy = value ? strdup(value) : NULL, *rest = NULL;
    for (char *path = copy ? strtok_r(copy, ":", &rest) : NULL; path; path = strtok_r(NULL, ":", &rest))
        sandbox_allow_model(s, path), sandbox_allow_read(s, path);
    free(copy);
}

static void allow_devices(const sandbox *s)
{
    static const char *const patterns[] = {"/dev/dri", "/dev/kfd", "/dev/nvidia*", "/dev/dxg", "/dev/mali*",
                                           "/dev/udmabuf", "/dev/dma_heap"};
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        glob_t found;
        if (glob(patterns[i], 0, NULL, &found) != 0) continue;
        for (size_t k = 0; k < found.gl_pathc; k++) allow(s, found.gl_pathv[k], USE_DEVICE);
        globfree(&found);
    }
}

void sandbox_open(sandbox *s)
{
    /* Loaders of libraries and drivers read these files of /etc, which has keys and passwords too. */
    static const char *const read[] = {"/usr", "/lib", "/lib64", "/opt", "/nix/store", "/gnu/store",
                                       "/run/opengl-driver", "/proc", "/sys", "/dev/urandom", "/dev/zero",
                                       "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/vulkan",
                                       "/etc/glvnd", "/etc/drirc", "/etc/nvidia", "/etc/localtime"};
    static const char *const lists[] = {"LD_LIBRARY_PATH", "VK_ICD_FILENAMES", "VK_DRIVER_FILES",
                                        "VK_ADD_DRIVER_FILES", "VK_LAYER_PATH", "VK_ADD_LAYER_PATH"};
    long version = syscall(CALL_CREATE_RULESET, NULL, 0, ASK_VERSION);
    ruleset_fields refused = fields_of(version);
    s->rights = refused.files;
    s->ruleset = version > 0 ? (int)syscall(CALL_CREATE_RULESET, &refused, sizeof refused, 0) : -1;
    for (size_t i = 0; i < sizeof read / sizeof *read; i++) sandbox_allow_read(s, read[i]);
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) allow_listed(s, lists[i]);
    allow(s, "/dev/null", USE_DEVICE);
    allow(s, "/proc/self", READ | RIGHT_WRITE_FILE); /* names of threads */
    allow_devices(s);
}

/* ---- system calls -------------------------------------------------------------------------------------- */

/* These calls came with later kernels than the oldest headers; all architectures share their numbers. */
enum {
    LATER_PIDFD_SEND_SIGNAL = 424, LATER_IO_URING_SETUP = 425, LATER_OPEN_TREE = 428, LATER_MOVE_MOUNT, LATER_FSOPEN,
    LATER_FSCONFIG, LATER_FSMOUNT, LATER_FSPICK, LATER_PIDFD_OPEN, LATER_CLONE3, LATER_PIDFD_GETFD = 438,
    LATER_PROCESS_MADVISE = 440, LATER_MOUNT_SETATTR = 442, LATER_QUOTACTL_FD, LATER_PROCESS_MRELEASE = 448,
    LATER_FCHMODAT2 = 452, LATER_STATMOUNT = 457, LATER_LISTMOUNT, LATER_SETXATTRAT = 463, LATER_REMOVEXATTRAT = 466,
    LATER_OPEN_TREE_ATTR, LATER_FILE_SETATTR = 469,
    LATER_LAST = LATER_FILE_SETATTR, /* the last known system call; later ones get ENOSYS */
};

#define REFUSED (SECCOMP_RET_ERRNO | EPERM)
#define UNKNOWN (SECCOMP_RET_ERRNO | ENOSYS)
#define LOAD(FIELD) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, FIELD))
#define IF(TEST, VALUE, N_YES, N_NO) BPF_JUMP(BPF_JMP | BPF_K | (TEST), VALUE, N_YES, N_NO)
#define RETURN(WHAT) BPF_STMT(BPF_RET | BPF_K, WHAT)
#define REFUSE(CALL) IF(BPF_JEQ, CALL, 0, 1), RETURN(REFUSED)
/* The low half of an argument; the kernel takes no more of those that are looked at. Both architectures are little-endian. */
#define ARGUMENT(I) LOAD(args[I])

/* A call with one of these bits in an argument. */
#define REFUSE_BITS(CALL, I, BITS)                                                                                              \
    IF(BPF_JEQ, CALL, 0, 4), ARGUMENT(I), IF(BPF_JSET, BITS, 0, 1), RETURN(REFUSED), RETURN(SECCOMP_RET_ALLOW)

/* A process under LeakSanitizer traces itself from a process of its own when it ends. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TRACES_ITSELF 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define TRACES_ITSELF 1
#endif
#ifdef TRACES_ITSELF
#define ALLOWED_CLONES 0xFFFFFFFFu
#define REFUSE_PTRACE
#else
#define ALLOWED_CLONES CLONE_THREAD
#define REFUSE_PTRACE REFUSE(SYS_ptrace),
#endif

#ifdef __x86_64__
#define ARCHITECTURE AUDIT_ARCH_X86_64
/* Newer architectures have these under other names alone. Calls of x32 have a bit that puts them beyond the last one. */
#define REFUSE_OLD_CALLS                                                                                     \
    REFUSE(SYS_fork), REFUSE(SYS_vfork), REFUSE(SYS_chmod), REFUSE(SYS_chown), REFUSE(SYS_lchown),           \
        REFUSE(SYS_link), REFUSE(SYS_symlink), REFUSE(SYS_mknod), REFUSE(SYS_iopl), REFUSE(SYS_ioperm),      \
        REFUSE(SYS_modify_ldt), REFUSE(SYS_uselib),
#else
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#define REFUSE_OLD_CALLS
#endif

static bool install(const struct sock_filter *code, size_t n)
{
    struct sock_fprog program = {(unsigned short)n, (struct sock_filter *)(uintptr_t)code};
    /* All threads; without a slower mode of the CPU that old kernels couple with filters. */
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC | SECCOMP_FILTER_FLAG_SPEC_ALLOW,
                   &program) == 0;
}

static bool filter_calls(void)
{
    const struct sock_filter code[] = {
        LOAD(arch), IF(BPF_JEQ, ARCHITECTURE, 1, 0), RETURN(SECCOMP_RET_KILL_PROCESS),
        LOAD(nr), IF(BPF_JGT, LATER_LAST, 0, 1), RETURN(UNKNOWN),
        /* the network beyond the open sockets */
        REFUSE(SYS_socket), REFUSE(SYS_connect), REFUSE(SYS_bind), REFUSE(SYS_listen),
        /* a listening socket that is shut down can be connected by the first bytes that are sent */
        REFUSE_BITS(SYS_sendto, 3, MSG_FASTOPEN), REFUSE_BITS(SYS_sendmsg, 2, MSG_FASTOPEN), REFUSE_BITS(SYS_sendmmsg, 3, MSG_FASTOPEN),
        /* memory and queues that processes share by a name or a number */
        REFUSE(SYS_shmget), REFUSE(SYS_shmat), REFUSE(SYS_shmctl), REFUSE(SYS_semget), REFUSE(SYS_semop), REFUSE(SYS_semtimedop),
        REFUSE(SYS_semctl), REFUSE(SYS_msgget), REFUSE(SYS_msgsnd), REFUSE(SYS_msgrcv), REFUSE(SYS_msgctl), REFUSE(SYS_mq_open),
        REFUSE(SYS_mq_unlink),
        /* programs and other processes */
        REFUSE(SYS_execve), REFUSE(SYS_execveat), REFUSE_PTRACE REFUSE(SYS_process_vm_readv),
        REFUSE(SYS_process_vm_writev), REFUSE(LATER_PROCESS_MADVISE), REFUSE(LATER_PROCESS_MRELEASE), REFUSE(SYS_kcmp),
        REFUSE(LATER_PIDFD_OPEN), REFUSE(LATER_PIDFD_GETFD), REFUSE(LATER_PIDFD_SEND_SIGNAL), REFUSE(SYS_kill),
        REFUSE(SYS_tkill), REFUSE(SYS_rt_sigqueueinfo), REFUSE(SYS_rt_tgsigqueueinfo), REFUSE(SYS_setns),
        REFUSE(SYS_unshare), REFUSE(SYS_personality), REFUSE(SYS_migrate_pages), REFUSE(SYS_move_pages),
        /* files: what Landlock does not look at, and needs no descriptor */
        REFUSE(SYS_truncate), REFUSE(SYS_fchmodat), REFUSE(LATER_FCHMODAT2), REFUSE(SYS_fchown), REFUSE(SYS_fchownat),
        REFUSE(SYS_linkat), REFUSE(SYS_symlinkat), REFUSE(SYS_mknodat), REFUSE(SYS_setxattr), REFUSE(SYS_lsetxattr),
        REFUSE(SYS_fsetxattr), REFUSE(LATER_SETXATTRAT), REFUSE(SYS_removexattr), REFUSE(SYS_lremovexattr),
        REFUSE(SYS_fremovexattr), REFUSE(LATER_REMOVEXATTRAT), REFUSE(LATER_FILE_SETATTR),
        REFUSE(SYS_name_to_handle_at), REFUSE(SYS_open_by_handle_at), REFUSE(SYS_fanotify_init), REFUSE(SYS_inotify_add_watch),
        /* file systems */
        REFUSE(SYS_mount), REFUSE(SYS_umount2), REFUSE(SYS_pivot_root), REFUSE(SYS_chroot), REFUSE(LATER_OPEN_TREE),
        REFUSE(LATER_OPEN_TREE_ATTR), REFUSE(LATER_MOVE_MOUNT), REFUSE(LATER_FSOPEN), REFUSE(LATER_FSCONFIG),
        REFUSE(LATER_FSMOUNT), REFUSE(LATER_FSPICK), REFUSE(LATER_MOUNT_SETATTR), REFUSE(LATER_STATMOUNT),
        REFUSE(LATER_LISTMOUNT), REFUSE(SYS_quotactl), REFUSE(LATER_QUOTACTL_FD), REFUSE(SYS_swapon), REFUSE(SYS_swapoff),
        /* the kernel, users, and calls with a record of faults */
        REFUSE(SYS_bpf), REFUSE(SYS_perf_event_open), REFUSE(SYS_userfaultfd), REFUSE(SYS_keyctl), REFUSE(SYS_add_key),
        REFUSE(SYS_request_key), REFUSE(SYS_init_module), REFUSE(SYS_finit_module), REFUSE(SYS_delete_module),
        REFUSE(SYS_kexec_load), REFUSE(SYS_kexec_file_load),
        REFUSE(SYS_reboot), REFUSE(SYS_syslog), REFUSE(SYS_acct), REFUSE(SYS_settimeofday),
        REFUSE(SYS_clock_settime), REFUSE(SYS_adjtimex), REFUSE(SYS_clock_adjtime), REFUSE(SYS_sethostname),
        REFUSE(SYS_setdomainname), REFUSE(SYS_vhangup), REFUSE(SYS_setuid), REFUSE(SYS_setgid), REFUSE(SYS_setreuid),
        REFUSE(SYS_setregid), REFUSE(SYS_setresuid), REFUSE(SYS_setresgid), REFUSE(SYS_setfsuid), REFUSE(SYS_setfsgid),
        REFUSE(SYS_setgroups), REFUSE(SYS_capset), REFUSE_OLD_CALLS
        /* threads, no processes: clone3 has its flags in memory, and the C library has clone where there is none */
        IF(BPF_JEQ, LATER_CLONE3, 0, 1), RETURN(UNKNOWN),
        IF(BPF_JEQ, SYS_clone, 0, 4), ARGUMENT(0), IF(BPF_JSET, ALLOWED_CLONES, 0, 1), RETURN(SECCOMP_RET_ALLOW), RETURN(REFUSED),
        /* signals to itself alone, as raise and abort send them */
        IF(BPF_JEQ, SYS_tgkill, 0, 4), ARGUMENT(0), IF(BPF_JEQ, (uint32_t)getpid(), 0, 1), RETURN(SECCOMP_RET_ALLOW), RETURN(REFUSED),
        /* limits of itself alone */
        IF(BPF_JEQ, SYS_prlimit64, 0, 5), ARGUMENT(0), IF(BPF_JEQ, 0, 1, 0), IF(BPF_JEQ, (uint32_t)getpid(), 0, 1),
        RETURN(SECCOMP_RET_ALLOW), RETURN(REFUSED),
        /* no signals to the owner of a descriptor, who may be any process */
        IF(BPF_JEQ, SYS_fcntl, 0, 6), ARGUMENT(1), IF(BPF_JEQ, F_SETOWN, 2, 0), IF(BPF_JEQ, F_SETOWN_EX, 1, 0),
        IF(BPF_JEQ, F_SETSIG, 0, 1), RETURN(REFUSED), RETURN(SECCOMP_RET_ALLOW),
        /* nor by other calls, and no keys typed into the terminal that it was started from */
        IF(BPF_JEQ, SYS_ioctl, 0, 6), ARGUMENT(1), IF(BPF_JEQ, FIOSETOWN, 3, 0), IF(BPF_JEQ, SIOCSPGRP, 2, 0),
        IF(BPF_JEQ, TIOCSTI, 1, 0), IF(BPF_JEQ, TIOCLINUX, 0, 1), RETURN(REFUSED),
        RETURN(SECCOMP_RET_ALLOW),
    };
    return install(code, sizeof code / sizeof *code);
}

void sandbox_seal(void)
{
    static atomic_bool is_sealed;
    const struct sock_filter code[] = {LOAD(nr), REFUSE(LATER_IO_URING_SETUP), RETURN(SECCOMP_RET_ALLOW)};
    if (!atomic_exchange(&is_sealed, true)) (void)install(code, sizeof code / sizeof *code);
}

/* ---- both ---------------------------------------------------------------------------------------------- */

const char *sandbox_enter(sandbox *s)
{
    bool may = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0;
    bool files = may && s->ruleset >= 0 && syscall(CALL_RESTRICT_SELF, s->ruleset, 0) == 0;
    bool calls = may && filter_calls();
    if (s->ruleset >= 0) close(s->ruleset);
    s->ruleset = -1;
    if (files && calls) return NULL;
    return calls   ? "Landlock, which closes other files to the server"
           : files ? "filters of system calls (seccomp), which refuse connections and programs"
                   : "Landlock and filters of system calls (seccomp)";
}
