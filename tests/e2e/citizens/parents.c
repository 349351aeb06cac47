/* parents NUMBER: whoever asks for its parent is told what it would be told bare, where NUMBER is the
   parent of this process: by libc's function and by its syscall, in a child, in a sibling, in an orphan, in
   a program that an orphan executes, and beside a subreaper of the program's own. */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int is(int parent) {
    return getppid() == parent && syscall(SYS_getppid) == parent;
}

static int becomes(int parent) {
    for (int turn = 0; turn < 400 && !is(parent); turn++)
        usleep(5000);
    return is(parent);
}

static int said(pid_t child, int flags) {
    int status;
    return waitpid(child, &status, flags) == child && status == 0;
}

/* What a child that has lost its parent finds, which `then` does. */
static int orphaned(int (*then)(const char *self), const char *self) {
    int ends[2];
    char found = 1;
    if (pipe(ends))
        return 0;
    pid_t maker = fork();
    if (maker == 0) {
        pid_t before = getpid();
        if (fork() == 0) {
            if (!is(before))
                _exit(1);
            dup2(ends[1], 1);
            int result = then(self);
            write(1, result ? "y" : "n", 1);
            _exit(0);
        }
        usleep(20000);
        _exit(0);
    }
    close(ends[1]);
    int ended = said(maker, 0);
    ssize_t got = read(ends[0], &found, 1);
    close(ends[0]);
    return ended && got == 1 && found == 'y';
}

static int waits(const char *self) {
    (void)self;
    return becomes(1);
}

static int executes(const char *self) {
    usleep(100000);
    execl(self, self, "orphan", (char *)0);
    return 0;
}

static int ours;
static int adopted(const char *self) {
    (void)self;
    return becomes(ours);
}

int main(int count, char **words) {
    if (count < 2)
        return 2;
    if (strcmp(words[1], "orphan") == 0)
        return write(1, is(1) ? "y" : "n", 1) != 1;
    int parent = atoi(words[1]);
    if (!is(parent))
        return printf("the parent is %d and %ld, not %d\n", getppid(), syscall(SYS_getppid), parent), 1;
    pid_t own = getpid();
    pid_t child = fork();
    if (child == 0)
        _exit(!is(own));
    if (!said(child, 0))
        return puts("a child is told another parent"), 1;
    /* It is not ours to wait for. */
    int ends[2];
    char found = 'n';
    if (pipe(ends))
        return 2;
    pid_t sibling = syscall(SYS_clone, CLONE_PARENT | SIGCHLD, 0, 0, 0, 0);
    if (sibling == 0) {
        write(ends[1], is(parent) ? "y" : "n", 1);
        _exit(0);
    }
    if (read(ends[0], &found, 1) != 1 || found != 'y')
        return puts("a sibling is told another parent"), 1;
    if (count == 2 && !orphaned(waits, 0))
        return puts("an orphan is not told that its parent has ended"), 1;
    if (count == 2 && !orphaned(executes, words[0]))
        return puts("what an orphan executes is not told that the parent has ended"), 1;
    ours = own;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    if (!orphaned(adopted, 0))
        return puts("who is adopted by the program is told another parent"), 1;
    return 0;
}
