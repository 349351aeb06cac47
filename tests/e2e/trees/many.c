// many COPIES AT_A_TIME MIB MS: forks so many copies, so many at a time, which each fill so much and stay a while.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int argc, char **argv) {
  int n = atoi(argv[1]), at = atoi(argv[2]), mib = atoi(argv[3]), ms = atoi(argv[4]);
  int live = 0;
  for (int i = 0; i < n; i++) {
    if (live == at) { wait(0); live--; }
    pid_t p = fork();
    if (p < 0) { perror("fork"); return 1; }
    if (!p) {
      size_t len = (size_t)mib << 20;
      char *m = mmap(0, len, PROT_READ|PROT_WRITE, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0);
      for (size_t k = 0; k < len; k += 4096) *(unsigned long *)(m + k) = k + getpid() * 2654435761ul, memset(m + k + 8, (int)(k>>12)+getpid(), 2000);
      usleep(ms * 1000);
      for (size_t k = 0; k < len; k += 4096) if (*(unsigned long *)(m + k) != k + getpid() * 2654435761ul) abort();
      _exit(0);
    }
    live++;
  }
  int bad = 0, st;
  while (wait(&st) > 0) bad |= st;
  printf("bad %d\n", bad);
  return bad != 0;
}
