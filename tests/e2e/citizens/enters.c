/* Enters user and pid namespace of a child by one call of setns, and takes memory then. */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static const long BYTES = 64L << 20, PAGE = 4096;

int main(void)
{
    long child = syscall(SYS_clone, CLONE_NEWUSER | CLONE_NEWPID | SIGCHLD, 0, 0, 0, 0);
    if (child == 0)
        for (;;)
            pause();
    int pidfd = syscall(SYS_pidfd_open, child, 0);
    if (child < 0 || setns(pidfd, CLONE_NEWUSER | CLONE_NEWPID) != 0) {
        perror("setns");
        return 2;
    }
    /* Its children are in that namespace. */
    pid_t inside = fork();
    if (inside == 0)
        _exit(getpid() < 100 ? 0 : 4);
    int status = -1;
    waitpid(inside, &status, 0);
    char *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (long at = 0; at < BYTES; at += PAGE)
        *(long *)(memory + at) = at + 1;
    for (long at = 0; at < BYTES; at += PAGE)
        if (*(long *)(memory + at) != at + 1)
            return 3;
    kill(child, SIGKILL);
    return status == 0 ? 0 : 5;
}
