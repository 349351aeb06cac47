/* Makes a thread, rests, and says so. */
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static void *nothing(void *word) { return word; }

int main(void) {
    pthread_t thread;
    if (pthread_create(&thread, 0, nothing, 0) || pthread_join(thread, 0))
        return 1;
    usleep(300000);
    puts("right");
    return 0;
}
