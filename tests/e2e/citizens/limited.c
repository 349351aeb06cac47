/* No descriptor can be opened any more, and then `file` FILE: the agent goes for good, while little of
   a mapped file was touched; `fork`: a child looks at memory most of which is out. */
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096
#define PAGES ((48L << 20) / PAGE)
#define WORDS (PAGE / sizeof(long))

static void fill(long *words)
{
    for (long page = 0; page < PAGES; page++)
        for (unsigned at = 0; at < WORDS; at++)
            words[page * WORDS + at] = page * 7 + 1;
}

static int is_right(const long *words)
{
    for (long page = 0; page < PAGES; page++)
        if (words[page * WORDS] != page * 7 + 1 || words[page * WORDS + WORDS - 1] != page * 7 + 1) {
            fprintf(stderr, "page %ld is %ld\n", page, words[page * WORDS]);
            return 0;
        }
    return 1;
}

static void limit(void)
{
    const struct rlimit none = {0, 0};
    if (setrlimit(RLIMIT_NOFILE, &none) != 0)
        exit(6);
}

static int file(const char *name)
{
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
    long *made = malloc(PAGES * PAGE);
    fill(made);
    for (long done = 0; done < PAGES * PAGE;)
        done += write(fd, (char *)made + done, PAGES * PAGE - done);
    free(made);
    if (fsync(fd) != 0)
        return 1;
    close(fd);
    sleep(3); /* only a file that rests is managed */
    fd = open(name, O_RDONLY);
    long *words = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    if (words == MAP_FAILED || words[0] != 1)
        return 2;
    limit();
    struct sock_filter all = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog filter = {1, &all};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return 3;
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter) != 0)
        return 4;
    return is_right(words) ? 0 : 5;
}

static int forks(void)
{
    long *words = malloc(PAGES * PAGE);
    fill(words);
    limit();
    pid_t child = fork();
    if (child == 0)
        _exit(is_right(words) ? 0 : 5);
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child)
        return 1;
    if (status != 0)
        fprintf(stderr, "the child's status is %#x\n", status);
    return status == 0 && is_right(words) ? 0 : 2;
}

int main(int count, char **words)
{
    if (count == 3 && !strcmp(words[1], "file"))
        return file(words[2]);
    return forks();
}
