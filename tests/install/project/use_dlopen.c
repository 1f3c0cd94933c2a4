/* use_dlopen LIBRARY BUNDLE: the C ABI of a library that is found when the program runs. */
#include <dlfcn.h>
#include <kbundle/kbundle_c.h>
#include <stdio.h>

int main(int count, char** words) {
  void* library = count == 3 ? dlopen(words[1], RTLD_NOW | RTLD_LOCAL) : NULL;
  kb_error* (*open)(const char*, const char*, kb_bundle**);
  kb_error* (*verify)(const kb_bundle*);
  void (*release)(kb_bundle*);
  kb_bundle* bundle = NULL;
  if (library == NULL) {
    fprintf(stderr, "%s\n", count == 3 ? dlerror() : "use_dlopen LIBRARY BUNDLE");
    return 2;
  }
  /* ISO C has no cast from a pointer to an object to one to a function; POSIX says to write so. */
  *(void**)&open = dlsym(library, "kb_bundle_open");
  *(void**)&verify = dlsym(library, "kb_bundle_verify");
  *(void**)&release = dlsym(library, "kb_bundle_release");
  if (open(words[2], NULL, &bundle) != NULL || verify(bundle) != NULL) return 1;
  release(bundle);
  puts("verified");
  return 0;
}
