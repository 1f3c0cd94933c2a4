# Makes of ffi/python what two wheels would install: the library beside the package kbundle, and the package kbundle_kernels
# of kernels/python and the functions that op families bring along (kernels/<family>/jax.py becomes <family>.py, and jax_<more>.py
# there <family>_<more>.py; pytorch.py becomes pytorch/<family>.py, and pytorch_<more>.py pytorch/<family>_<more>.py), with its entry points.
# Its bundle is the one that is built into build/.
#
# PYTHON: the folder; KERNELS: the families; VERSION. LIBRARY: empty leaves the library out. BUNDLE: where the bundle is, from the package
# kbundle_kernels; empty: in it.
if(LIBRARY)
  file(COPY_FILE "${LIBRARY}" "${PYTHON}/kbundle/libkbundle.so.new")
  file(RENAME "${PYTHON}/kbundle/libkbundle.so.new" "${PYTHON}/kbundle/libkbundle.so")  # never half a file
endif()

set(package "${PYTHON}/kbundle_kernels")
file(GLOB wrappers "${KERNELS}/*/jax.py" "${KERNELS}/*/jax_*.py")
list(REMOVE_ITEM wrappers "${KERNELS}/python/jax.py")
file(REMOVE_RECURSE "${package}" "${PYTHON}/kbundle/families")  # the latter is of builds before 0.1.0
configure_file("${KERNELS}/python/__init__.py" "${package}/__init__.py" COPYONLY)
configure_file("${KERNELS}/python/jax.py" "${package}/jax.py" COPYONLY)
foreach(wrapper ${wrappers})
  get_filename_component(folder "${wrapper}" DIRECTORY)
  get_filename_component(family "${folder}" NAME)
  get_filename_component(file "${wrapper}" NAME)
  string(REGEX REPLACE "^jax" "${family}" module "${file}")
  configure_file("${wrapper}" "${package}/${module}" COPYONLY)
endforeach()
file(GLOB wrappers "${KERNELS}/*/pytorch.py" "${KERNELS}/*/pytorch_*.py")
list(REMOVE_ITEM wrappers "${KERNELS}/python/pytorch.py")
configure_file("${KERNELS}/python/pytorch.py" "${package}/pytorch/__init__.py" COPYONLY)
foreach(wrapper ${wrappers})
  get_filename_component(folder "${wrapper}" DIRECTORY)
  get_filename_component(family "${folder}" NAME)
  get_filename_component(file "${wrapper}" NAME)
  string(REGEX REPLACE "^pytorch" "${family}" module "${file}")
  configure_file("${wrapper}" "${package}/pytorch/${module}" COPYONLY)
endforeach()
if(BUNDLE)
  file(APPEND "${package}/__init__.py"
       "# Of this checkout:\nBUNDLE = os.path.normpath(os.path.join(os.path.dirname(BUNDLE), \"${BUNDLE}\"))\n")
endif()

set(about "${PYTHON}/kbundle_kernels-${VERSION}.dist-info")
file(WRITE "${about}/METADATA" "Metadata-Version: 2.1\nName: kbundle-kernels\nVersion: ${VERSION}\n")
configure_file("${KERNELS}/python/entry_points.txt" "${about}/entry_points.txt" COPYONLY)
