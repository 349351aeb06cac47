/* Fills memory, puts itself behind a filter that kills whoever makes a call that is not on its list, and forks. The only
   argument says how the filter is given: to this thread (0), or to all of them (1). The child checks the memory and so does the
   parent. */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define ALLOW(call) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

enum { BYTES = 96 << 20, PAGE = 4096 };

static int wrong(const char *memory) {
    for (long at = 0; at < BYTES; at += PAGE)
        if (*(const long *)(memory + at) != at + 1) return 1;
    return 0;
}

int main(int count, char **words) {
    unsigned flags = count > 1 ? (unsigned)atoi(words[1]) : 0;
    char *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (long at = 0; at < BYTES; at += PAGE) *(long *)(memory + at) = at + 1;
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    struct sock_filter list[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(SYS_write), ALLOW(SYS_exit_group), ALLOW(SYS_clone), ALLOW(SYS_wait4), ALLOW(SYS_mmap), ALLOW(SYS_munmap),
        ALLOW(SYS_set_robust_list), ALLOW(SYS_rt_sigprocmask), ALLOW(SYS_rseq), ALLOW(SYS_gettid), ALLOW(SYS_getpid),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog program = {sizeof list / sizeof *list, list};
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program) != 0) return 2;
    char *more = mmap(NULL, 8 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(more, 1, 8 << 20);
    pid_t child = fork();
    if (child == 0) _exit(wrong(memory) ? 3 : 0);
    int status = 0;
    if (child < 0 || wait4(child, &status, 0, NULL) != child) return 4;
    if (status != 0) return 5;
    return wrong(memory) ? 6 : 0;
}
