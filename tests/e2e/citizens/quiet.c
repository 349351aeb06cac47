/* Forks by the forms that run no handlers. */
#define _GNU_SOURCE
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int succeeds(pid_t child)
{
    int status;
    if (child == 0)
        _exit(0);
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

int main(void)
{
    if (!succeeds(_Fork()))
        return 2;
    return succeeds(syscall(SYS_fork)) ? 0 : 3;
}
