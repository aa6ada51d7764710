/* SPDX-License-Identifier: Apache-2.0 */
/*
 * OpenSSL, loaded when it is first called, as libarchive is: to load it took half of each start of a command line that
 * talks to its service through a socket in the file system. These stand in the place of its functions; what the
 * processor's registers and the stack hold goes on to the real one. Where one is missing, or on another processor, the
 * linker takes the library itself, and each start is slower.
 */
#include "base/str.h"
#include "cli/files/libarchive.h"

#include <dlfcn.h>
#include <openssl/opensslv.h>

#ifdef __x86_64__

/* clang-format off */
#define OPENSSL(F) \
    F(ASN1_STRING_get0_data) F(ASN1_STRING_length) F(ASN1_TIME_to_tm) F(BIO_clear_flags) F(BIO_ctrl) F(BIO_free) \
    F(BIO_free_all) F(BIO_get_data) F(BIO_get_new_index) F(BIO_meth_free) F(BIO_meth_new) F(BIO_meth_set_create) \
    F(BIO_meth_set_ctrl) F(BIO_meth_set_read) F(BIO_meth_set_write) F(BIO_new) F(BIO_new_mem_buf) F(BIO_s_mem) \
    F(BIO_set_data) F(BIO_set_flags) F(BIO_set_init) F(BN_bin2bn) F(BN_free) F(BN_to_ASN1_INTEGER) F(ERR_clear_error) \
    F(EVP_CIPHER_get_iv_length) F(EVP_CipherInit_ex) F(EVP_DigestFinal_ex) F(EVP_DigestInit_ex) F(EVP_DigestUpdate) \
    F(EVP_DigestVerify) F(EVP_DigestVerifyInit) F(EVP_MAC_init) F(EVP_MD_CTX_free) F(EVP_MD_CTX_new) \
    F(EVP_PKEY_Q_keygen) F(EVP_PKEY_free) F(EVP_PKEY_new_raw_public_key) F(EVP_aes_256_cbc) F(EVP_sha256) \
    F(GENERAL_NAMES_free) F(OPENSSL_sk_num) F(OPENSSL_sk_value) F(OSSL_PARAM_construct_end) \
    F(OSSL_PARAM_construct_utf8_string) F(PEM_read_bio_PrivateKey) F(PEM_read_bio_X509) \
    F(PEM_write_bio_PKCS8PrivateKey) F(PEM_write_bio_X509) F(SHA256) F(X509V3_EXT_nconf_nid) F(X509V3_set_ctx) \
    F(X509_EXTENSION_free) F(X509_NAME_add_entry_by_txt) F(X509_VERIFY_PARAM_set1_ip_asc) F(X509_add_ext) \
    F(X509_check_ca) F(X509_check_host) F(X509_check_private_key) F(X509_cmp) F(X509_free) F(X509_get0_notAfter) \
    F(X509_get0_notBefore) F(X509_get_ext_d2i) F(X509_get_serialNumber) F(X509_get_subject_name) \
    F(X509_getm_notAfter) F(X509_getm_notBefore) F(X509_gmtime_adj) F(X509_new) F(X509_set_issuer_name) \
    F(X509_set_pubkey) F(X509_set_version) F(X509_sign) F(X509_time_adj_ex) F(SSL_CTX_check_private_key) \
    F(SSL_CTX_ctrl) F(SSL_CTX_free) F(SSL_CTX_get_ex_data) F(SSL_CTX_new) F(SSL_CTX_set_alpn_select_cb) \
    F(SSL_CTX_set_cipher_list) F(SSL_CTX_set_default_verify_paths) F(SSL_CTX_set_ex_data) F(SSL_CTX_set_num_tickets) \
    F(SSL_CTX_set_options) F(SSL_CTX_set_session_id_context) F(SSL_CTX_set_timeout) \
    F(SSL_CTX_set_tlsext_ticket_key_evp_cb) F(SSL_CTX_set_verify) F(SSL_CTX_use_PrivateKey) \
    F(SSL_CTX_use_certificate) F(SSL_connect) F(SSL_ctrl) F(SSL_do_handshake) F(SSL_free) F(SSL_get0_param) \
    F(SSL_get1_peer_certificate) F(SSL_get_SSL_CTX) F(SSL_get_error) F(SSL_get_verify_result) F(SSL_has_pending) \
    F(SSL_is_init_finished) F(SSL_new) F(SSL_peek_ex) F(SSL_read_ex) F(SSL_select_next_proto) F(SSL_set1_host) \
    F(SSL_set_accept_state) F(SSL_set_alpn_protos) F(SSL_set_bio) F(SSL_set_fd) F(SSL_set_hostflags) F(SSL_shutdown) \
    F(SSL_want) F(SSL_write_ex) F(TLS_client_method) F(TLS_server_method)
/* clang-format on */

#define OPENSSL_SO_OF(name, version) name ".so." #version
#define OPENSSL_SO(name, version) OPENSSL_SO_OF(name, version)

void *openssl_find(const char *name); /* called from below */
void *openssl_find(const char *name)
{
    static void *crypto, *ssl;
    const bool is_ssl = str_starts(str_of(name), STR("SSL_")) || str_starts(str_of(name), STR("TLS_"));
    void **library = is_ssl ? &ssl : &crypto;
    if (!*library)
        *library = dlopen(is_ssl ? OPENSSL_SO("libssl", OPENSSL_SHLIB_VERSION)
                                 : OPENSSL_SO("libcrypto", OPENSSL_SHLIB_VERSION),
                          RTLD_NOW | RTLD_LOCAL);
    return library_symbol(*library, name);
}

/* r11: where the function's address is kept; r10: its name. What holds arguments is as it was when that is called. */
__asm__(".text\n"
        "openssl_first:\n"
        "    push %rdi; push %rsi; push %rdx; push %rcx; push %r8; push %r9; push %rax; push %r10; push %r11\n"
        "    mov %r10, %rdi\n"
        "    call openssl_find\n"
        "    pop %r11; mov %rax, (%r11)\n"
        "    pop %r10; pop %rax; pop %r9; pop %r8; pop %rcx; pop %rdx; pop %rsi; pop %rdi\n"
        "    jmp *(%r11)\n");

#define OPENSSL_FORWARD(name)                                                                                          \
    __asm__(".local openssl_at_" #name "; .comm openssl_at_" #name ", 8, 8\n"                                          \
            ".globl " #name "; .hidden " #name "; .type " #name ", @function\n" #name ":\n"                            \
            "    endbr64\n"                                                                                            \
            "    lea openssl_at_" #name "(%rip), %r11\n"                                                               \
            "    lea 1f(%rip), %r10\n"                                                                                 \
            "    cmpq $0, (%r11)\n"                                                                                    \
            "    je openssl_first\n"                                                                                   \
            "    jmp *(%r11)\n"                                                                                        \
            "1:  .asciz \"" #name "\"\n");
OPENSSL(OPENSSL_FORWARD)

#endif
