dnl SPDX-License-Identifier: LGPL-2.1-or-later
dnl
dnl BMI methods whose code lives in a library of their own, outside this tree; the tree holds a thin shim.
dnl
dnl   --with-bmi-ib[=PREFIX]     InfiniBand and RoCE, library bmi_ib
dnl   --with-bmi-elan4[=PREFIX]  Quadrics QsNetII, library bmi_elan4
dnl
dnl Both stand on the engine, library rme.  Without PREFIX the library comes from pkg-config, or from where the compiler looks by itself.  With it, headers are in
dnl PREFIX/include/bmi-rdma and the library in PREFIX/lib, lib64 or lib/<multiarch>.

dnl AX_BMI_EXT_METHOD(option, VARIABLE, library, function that proves it, what it is, packages to install)
AC_DEFUN([AX_BMI_EXT_METHOD],
[
    bmi_ext_prefix=no
    AC_ARG_WITH([$1],
        [AS_HELP_STRING([--with-$1@<:@=PREFIX@:>@], [BMI method for $5, from library $3 (default: not built)])],
        [bmi_ext_prefix="$withval"])
    BUILD_$2=
    $2_INCDIR=
    $2_LIBS=
    if test "x$bmi_ext_prefix" != xno; then
        AC_MSG_CHECKING([for $3])
        bmi_ext_cflags=
        bmi_ext_libs=
        bmi_ext_where=
        if test "x$bmi_ext_prefix" = xyes || test -z "$bmi_ext_prefix"; then
            if ${PKG_CONFIG-pkg-config} --exists $3 2>/dev/null; then
                bmi_ext_where=pkg-config
                bmi_ext_cflags=`${PKG_CONFIG-pkg-config} --cflags $3`
                bmi_ext_libs=`${PKG_CONFIG-pkg-config} --libs $3`
                $2_INCDIR=`${PKG_CONFIG-pkg-config} --variable=includedir $3`
                bmi_ext_dir=`${PKG_CONFIG-pkg-config} --variable=libdir $3`
                case "$bmi_ext_dir" in
                /usr/lib|/usr/lib64|/lib|/lib64|/usr/lib/*) ;;
                *) bmi_ext_libs="$bmi_ext_libs -Wl,-rpath,$bmi_ext_dir" ;;
                esac
            else
                bmi_ext_where="the compiler's default paths"
                bmi_ext_libs="-l$3 -lrme"
            fi
        else
            if test ! -f "$bmi_ext_prefix/include/bmi-rdma/rme.h"; then
                AC_MSG_RESULT([no])
                AC_MSG_ERROR([--with-$1=$bmi_ext_prefix: there is no $bmi_ext_prefix/include/bmi-rdma/rme.h; install $3 there (make install) or name the prefix where it is])
            fi
            $2_INCDIR="$bmi_ext_prefix/include/bmi-rdma"
            bmi_ext_cflags="-I$bmi_ext_prefix/include/bmi-rdma"
            bmi_ext_arch=`$CC -print-multiarch 2>/dev/null`
            for bmi_ext_dir in lib lib64 ${bmi_ext_arch:+lib/$bmi_ext_arch}; do
                bmi_ext_dir="$bmi_ext_prefix/$bmi_ext_dir"
                if test -f "$bmi_ext_dir/lib$3.so"; then
                    bmi_ext_where="$bmi_ext_dir"
                    bmi_ext_libs="-L$bmi_ext_dir -l$3 -lrme -Wl,-rpath,$bmi_ext_dir"
                    break
                elif test -f "$bmi_ext_dir/lib$3.a"; then
                    bmi_ext_where="$bmi_ext_dir"
                    bmi_ext_libs="$bmi_ext_dir/lib$3.a $bmi_ext_dir/librme.a $6 -lpthread"
                    break
                fi
            done
            if test -z "$bmi_ext_where"; then
                AC_MSG_RESULT([no])
                AC_MSG_ERROR([--with-$1=$bmi_ext_prefix: no lib$3.so or lib$3.a in $bmi_ext_prefix/lib, lib64 or lib/$bmi_ext_arch])
            fi
        fi
        AC_MSG_RESULT([$bmi_ext_where])
        bmi_ext_save_cppflags="$CPPFLAGS"
        bmi_ext_save_libs="$LIBS"
        CPPFLAGS="$CPPFLAGS $bmi_ext_cflags"
        LIBS="$bmi_ext_libs $LIBS"
        AC_MSG_CHECKING([whether $3 links])
        AC_LINK_IFELSE([AC_LANG_PROGRAM([[
#include <rme.h>
#include <$3.h>
            ]], [[return $4() == 0;]])],
            [AC_MSG_RESULT([yes])],
            [AC_MSG_RESULT([no])
             AC_MSG_ERROR([--with-$1: a program with rme.h, $3.h and $4() does not link against "$bmi_ext_libs"; config.log says why. Is the library installed (its own make install), and are its own libraries ($6)?])])
        CPPFLAGS="$bmi_ext_save_cppflags"
        LIBS="$bmi_ext_save_libs"
        BUILD_$2=1
        $2_LIBS="$bmi_ext_libs"
    fi
    AC_SUBST([BUILD_$2])
    AC_SUBST([$2_INCDIR])
    AC_SUBST([$2_LIBS])
])

AC_DEFUN([AX_BMI_EXT],
[
    AX_BMI_EXT_METHOD([bmi-ib], [BMI_IB_EXT], [bmi_ib], [bmi_ib_fabric], [InfiniBand and RoCE], [-lrdmacm -libverbs])
    AX_BMI_EXT_METHOD([bmi-elan4], [BMI_ELAN4], [bmi_elan4], [bmi_elan4_fabric], [Quadrics QsNetII], [-lelan4])
    if test -n "$BUILD_BMI_IB_EXT"; then
        dnl Both would be the method bmi_ib, for addresses ib://.
        for bmi_ext_old in ib openib openib-includes openib-libs experimental-ib; do
            eval "bmi_ext_value=\$with_`echo $bmi_ext_old | tr - _`"
            if test -n "$bmi_ext_value" && test "x$bmi_ext_value" != xno; then
                AC_MSG_ERROR([--with-bmi-ib and --with-$bmi_ext_old both make the method bmi_ib; leave one of them out])
            fi
        done
    fi
    AC_CONFIG_FILES([src/io/bmi/bmi_ib_ext/module.mk src/io/bmi/bmi_elan4/module.mk])
])

dnl For the summary at configure's end.
AC_DEFUN([AX_BMI_EXT_SUMMARY],
[
    AC_MSG_RESULT([BMI method bmi_ib from library bmi_ib             : ${BMI_IB_EXT_LIBS:-no}])
    AC_MSG_RESULT([BMI method bmi_elan4 from library bmi_elan4       : ${BMI_ELAN4_LIBS:-no}])
])
