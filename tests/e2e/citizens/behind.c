// Built as a library: a stat that knows another owner, as fakeroot's does. As a program: asks for it.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

enum { OWNER = 4321 };

#ifdef LIBRARY
int stat(const char *path, struct stat *to)
{
    int result = fstatat(AT_FDCWD, path, to, 0);
    to->st_uid = OWNER;
    return result;
}

int lstat(const char *path, struct stat *to)
{
    int result = fstatat(AT_FDCWD, path, to, AT_SYMLINK_NOFOLLOW);
    to->st_uid = OWNER;
    return result;
}
#else
int main(void)
{
    struct stat one, other, threads;
    if (stat("/", &one) || lstat("/", &other) || stat("/proc/self/task", &threads))
        return 2;
    fprintf(stderr, "owners %u and %u, %lu links\n", one.st_uid, other.st_uid, (unsigned long)threads.st_nlink);
    return one.st_uid != OWNER || other.st_uid != OWNER || threads.st_nlink != 3;
}
#endif
