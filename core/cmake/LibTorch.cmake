# Imported targets for LibTorch as the PyPI wheel ships it, without find_package(Torch), which insists on a CUDA
# toolkit and links CUDA into a CPU program.
#   LibTorch::c10, LibTorch::cpu; LibTorch::c10_cuda, LibTorch::cuda where the wheel has them
# In:  -DLIBTORCH_ROOT=<site-packages>/torch, or -DTorch_DIR=<root>/share/cmake/Torch; else the private virtual
#      environments made by tests/setup.sh, else the torch of python3.
# Out: LIBTORCH_ROOT, LIBTORCH_LIB_DIR, LIBTORCH_VERSION (2.15.0), NVIDIA_ROOT (the wheels' nvidia folder, if there)
include_guard(GLOBAL)

function(_libtorch_find out)
  if(Torch_DIR)
    cmake_path(SET root NORMALIZE ${Torch_DIR}/../../..)
    set(${out} ${root} PARENT_SCOPE)
    return()
  endif()
  set(cache $ENV{SHALE_CACHE})
  if(NOT cache)
    set(cache $ENV{HOME}/.cache/shale)
  endif()
  file(GLOB wheels ${cache}/venv-test/lib/python3*/site-packages/torch
       ${cache}/venv-run/lib/python3*/site-packages/torch)
  foreach(root IN LISTS wheels)
    if(EXISTS ${root}/lib/libtorch_cpu.so)
      set(${out} ${root} PARENT_SCOPE)
      return()
    endif()
  endforeach()
  execute_process(COMMAND python3 -c
    "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')"
    OUTPUT_VARIABLE root OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  set(${out} "${root}" PARENT_SCOPE)
endfunction()

if(NOT LIBTORCH_ROOT)
  _libtorch_find(root)
  set(LIBTORCH_ROOT "${root}" CACHE PATH "The torch folder of LibTorch: holds lib/libtorch_cpu.so and include/" FORCE)
endif()
set(LIBTORCH_LIB_DIR ${LIBTORCH_ROOT}/lib)
cmake_path(SET NVIDIA_ROOT NORMALIZE ${LIBTORCH_ROOT}/../nvidia)
foreach(needed lib/libtorch_cpu.so lib/libc10.so include/ATen/core/Tensor.h)
  if(NOT EXISTS ${LIBTORCH_ROOT}/${needed})
    message(FATAL_ERROR "LibTorch: ${LIBTORCH_ROOT}/${needed} is not there. Run tests/setup.sh, or give "
                        "-DLIBTORCH_ROOT=<site-packages>/torch.")
  endif()
endforeach()
file(STRINGS ${LIBTORCH_ROOT}/include/torch/headeronly/version.h version_lines REGEX "define TORCH_VERSION_[MP]")
string(REGEX REPLACE "[^;]*MAJOR ([0-9]+);[^;]*MINOR ([0-9]+);[^;]*PATCH ([0-9]+).*" "\\1.\\2.\\3" LIBTORCH_VERSION
       "${version_lines}")
if(LIBTORCH_VERSION VERSION_LESS 2.11)
  message(FATAL_ERROR "LibTorch: found ${LIBTORCH_VERSION} in ${LIBTORCH_ROOT}; 2.11 or newer is needed.")
endif()

function(_libtorch_import name file)
  if(EXISTS ${LIBTORCH_LIB_DIR}/${file})
    add_library(LibTorch::${name} SHARED IMPORTED GLOBAL)
    set_target_properties(LibTorch::${name} PROPERTIES IMPORTED_LOCATION ${LIBTORCH_LIB_DIR}/${file})
    target_link_libraries(LibTorch::${name} INTERFACE ${ARGN})
  endif()
endfunction()
_libtorch_import(c10 libc10.so)
_libtorch_import(cpu libtorch_cpu.so LibTorch::c10)
_libtorch_import(c10_cuda libc10_cuda.so LibTorch::c10)
_libtorch_import(cuda libtorch_cuda.so LibTorch::cpu LibTorch::c10_cuda)
target_include_directories(LibTorch::c10 SYSTEM INTERFACE ${LIBTORCH_ROOT}/include
                           ${LIBTORCH_ROOT}/include/torch/csrc/api/include)
target_compile_definitions(LibTorch::c10 INTERFACE USE_DISTRIBUTED USE_C10D_GLOO AT_PER_OPERATOR_HEADERS)
if(TARGET LibTorch::cuda)
  target_compile_definitions(LibTorch::cuda INTERFACE USE_CUDA USE_C10D_NCCL)
endif()
message(STATUS "LibTorch ${LIBTORCH_VERSION} at ${LIBTORCH_ROOT}")
