/* A child of vfork puts itself behind a filter that kills whoever asks whether a file may be read, and executes a program. */
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int count, char **words)
{
    static struct sock_filter list[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_faccessat2, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    static struct sock_fprog program = { sizeof list / sizeof *list, list };
    char *next[] = { words[0], "there", NULL };
    if (count > 1)
        return 0;
    pid_t child = vfork();
    if (child == 0) {
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0)
            execve(words[0], next, environ);
        _exit(2);
    }
    int status;
    return child > 0 && waitpid(child, &status, 0) == child && status == 0 ? 0 : 3;
}
