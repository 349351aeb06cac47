/* Linked with musl: makes the calls that the agent stands before, as musl has them, and starts programs that are linked
   with glibc in each way there is. The last is words[1], with the rest as its words, while this one has 16 MiB. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static const long PAGE = 4096, BYTES = 16L << 20;
static char stack[65536] __attribute__((aligned(16)));
static volatile int signals;

#define MUST(condition) do { if (!(condition)) { fprintf(stderr, "line %d: %s, errno %d\n", __LINE__, #condition, errno); \
    exit(2); } } while (0)

static void on_signal(int number) { signals += number == SIGUSR1; }
static int five(void *argument) { return *(int *)argument; }

static int code_of(pid_t child)
{
    int status = -1;
    MUST(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void *maps(void *none)
{
    for (int turn = 0; turn < 200; turn++) {
        char *memory = mmap(NULL, 64 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        MUST(memory != MAP_FAILED);
        memset(memory, turn, 64 * PAGE);
        memory = mremap(memory, 64 * PAGE, 4096 * PAGE, MREMAP_MAYMOVE);
        MUST(memory != MAP_FAILED && memory[63 * PAGE] == (char)turn && memory[64 * PAGE] == 0);
        MUST(madvise(memory, 64 * PAGE, MADV_DONTNEED) == 0 && memory[0] == 0);
        MUST(munmap(memory, 4096 * PAGE) == 0);
    }
    return none;
}

static void memory_calls(void)
{
    char *page = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(page != MAP_FAILED);
    /* The kernel would refuse that. */
    MUST(mprotect(page + 100, 10, PROT_READ) == 0 && mprotect(page, PAGE, PROT_READ | PROT_WRITE) == 0);
    MUST(syscall(SYS_mprotect, page + 100, 10, PROT_READ) == -1 && errno == EINVAL);
    MUST(mmap(NULL, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED && errno == EINVAL);
    MUST(mmap(NULL, -1UL, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED && errno == ENOMEM);
    MUST(madvise(page, PAGE, 12345) == -1 && errno == EINVAL && posix_madvise(page, PAGE, POSIX_MADV_WILLNEED) == 0);
    MUST(mlock(page, PAGE) == 0 && munlock(page, PAGE) == 0);
    int segment = shmget(IPC_PRIVATE, PAGE, 0600);
    char *shared = shmat(segment, NULL, 0);
    MUST(segment >= 0 && shmctl(segment, IPC_RMID, NULL) == 0 && shared != (char *)-1 && shmdt(shared) == 0);
    MUST(shmat(-1, NULL, 0) == (void *)-1 && errno == EINVAL);
    pthread_t threads[4];
    for (int at = 0; at < 4; at++)
        MUST(pthread_create(&threads[at], NULL, maps, NULL) == 0);
    for (int at = 0; at < 4; at++)
        MUST(pthread_join(threads[at], NULL) == 0);
}

static void other_calls(char *own)
{
    struct rlimit limit = { 100000000000, RLIM_INFINITY }, there;
    MUST(setrlimit(RLIMIT_AS, &limit) == 0 && getrlimit(RLIMIT_AS, &there) == 0 && there.rlim_cur == limit.rlim_cur);
    limit.rlim_cur = RLIM_INFINITY;
    MUST(prlimit(0, RLIMIT_AS, &limit, &there) == 0 && there.rlim_cur == 100000000000);
    int ends[2];
    char byte = 'a';
    struct iovec piece = { &byte, 1 };
    struct msghdr message;
    memset(&message, 0xff, sizeof message); /* what is left between the fields is not looked at */
    message.msg_name = NULL, message.msg_namelen = 0, message.msg_iov = &piece, message.msg_iovlen = 1;
    message.msg_control = NULL, message.msg_controllen = 0, message.msg_flags = 0;
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0 && sendmsg(ends[0], &message, 0) == 1);
    MUST(send(ends[0], &byte, 1, 0) == 1 && read(ends[1], stack, 9) == 2 && dup2(ends[0], ends[1]) == ends[1]);
    MUST(close(ends[0]) == 0 && close(ends[1]) == 0 && close(ends[1]) == -1 && errno == EBADF);
    MUST(bind(-1, NULL, 0) == -1 && errno == EBADF && setsockopt(-1, 0, 0, NULL, 0) == -1 && errno == EBADF);
    MUST(prctl(PR_SET_NAME, "named", 0, 0, 0) == 0 && prctl(-1, 0, 0, 0, 0) == -1 && errno == EINVAL);
    MUST(syscall(SYS_getpid) == getpid() && syscall(SYS_getppid) == getppid() && unshare(0) == 0);
    struct stat status;
    MUST(stat(own, &status) == 0 && status.st_size > 1000 && stat("/none", &status) == -1 && errno == ENOENT);
    int file = open(own, O_RDONLY);
    MUST(posix_fadvise(file, 0, 0, POSIX_FADV_WILLNEED) == 0 && posix_fadvise(-1, 0, 0, 0) == EBADF && close(file) == 0);
    struct sigaction action = { .sa_handler = on_signal };
    MUST(sigaction(SIGUSR1, &action, NULL) == 0 && raise(SIGUSR1) == 0 && signals == 1);
    void *libc = dlopen(NULL, RTLD_NOW);
    MUST(libc != NULL && dlerror() == NULL && dlsym(libc, "mmap") == (void *)mmap && dlerror() == NULL);
}

static int spawned(char **words)
{
    pid_t child;
    MUST(posix_spawn(&child, words[0], NULL, NULL, words, environ) == 0);
    return code_of(child);
}

static void processes(void)
{
    char *none[] = { "none", NULL }, *sh[] = { "sh", "-c", "exit $A", NULL }, *three[] = { "A=3", NULL };
    int number = 5;
    pid_t child;
    MUST(system("exit 3") == 3 << 8);
    FILE *said = popen("echo said", "r");
    MUST(said && fgets(stack, 99, said) && strcmp(stack, "said\n") == 0 && pclose(said) == 0);
    if ((child = fork()) == 0) {
        maps(NULL);
        _exit(system("exit 4") >> 8);
    }
    MUST(code_of(child) == 4);
    if ((child = _Fork()) == 0)
        _exit(6);
    MUST(code_of(child) == 6);
    if ((child = vfork()) == 0) {
        execl("/bin/sh", "sh", "-c", "exit 7", (char *)NULL);
        _exit(1);
    }
    MUST(code_of(child) == 7);
    if ((child = fork()) == 0) {
        execvpe("sh", sh, three);
        _exit(1);
    }
    MUST(code_of(child) == 3);
    if ((child = fork()) == 0) {
        execle("/bin/sh", "sh", "-c", "exit $A", (char *)NULL, three);
        _exit(1);
    }
    MUST(code_of(child) == 3);
    if ((child = fork()) == 0) {
        fexecve(open("/bin/sh", O_RDONLY), sh, three);
        _exit(1);
    }
    MUST(code_of(child) == 3);
    MUST(code_of(clone(five, stack + sizeof stack, SIGCHLD, &number)) == 5);
    MUST(posix_spawnp(&child, "none-such", NULL, NULL, none, environ) == ENOENT);
    MUST(execv("/none", none) == -1 && errno == ENOENT && execvp("none-such", none) == -1 && errno == ENOENT);
}

int main(int count, char **words)
{
    memory_calls();
    other_calls(words[0]);
    processes();
    if (count < 2)
        return 0;
    char *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(memory != MAP_FAILED);
    memset(memory, 1, BYTES);
    int code = spawned(words + 1);
    for (long at = 0; at < BYTES; at += PAGE)
        MUST(memory[at] == 1);
    return code;
}
